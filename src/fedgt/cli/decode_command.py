"""`fedgt decode`: who is malicious, given the outcomes of the group tests?"""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class StrategyName(StrEnum):
    """The strategies of `fedgt.decode`."""

    COUNT = "count"
    DELTA = "delta"
    BAYES = "bayes"


def decode(
    matrix: Annotated[
        Path, typer.Option(help="CSV or JSON file with the assignment matrix: one row of 0,1 per group.")
    ],
    outcomes: Annotated[str, typer.Option(help="One character per group: 0 negative, 1 positive, ? erased.")],
    prevalence: Annotated[
        float | None,
        typer.Option(help="P(malicious) of every client; without it the estimate over n, or the count prior."),
    ] = None,
    priors: Annotated[str | None, typer.Option(help="One prevalence per client instead, separated by commas.")] = None,
    false_alarm: Annotated[float, typer.Option(help="Assumed P(positive | no malicious member).")] = 0.05,
    misdetection: Annotated[float, typer.Option(help="Assumed P(negative | some malicious member).")] = 0.05,
    strategy: Annotated[StrategyName, typer.Option(help="How suspects are named.")] = StrategyName.BAYES,
    beta: Annotated[float, typer.Option(help="Weight of a misdetection against a false alarm.")] = 0.5,
    kappa: Annotated[
        float, typer.Option(help="Defines the largest number of malicious clients that is considered.")
    ] = 0.2,
    max_malicious: Annotated[int | None, typer.Option(help="That number itself.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Decode outcomes: log-odds (benign against malicious, in nats) and the flagged clients, numbered from 0."""
    import numpy as np

    from fedgt.decode import IndependentPrior
    from fedgt.decode import decode as decode_outcomes
    from fedgt.design import read_design
    from fedgt.errors import SpecError
    from fedgt.types import ErrorRates, Outcomes

    design = read_design(matrix)
    prior = None
    if prevalence is not None and priors is not None:
        raise SpecError("give --prevalence (one for all) or --priors (one per client), not both")
    if prevalence is not None:
        prior = IndependentPrior.uniform(design.clients, prevalence)
    if priors is not None:
        try:
            prior = IndependentPrior(prevalence=np.array([float(part) for part in priors.split(",")]))
        except ValueError as error:
            raise SpecError(f"--priors {priors!r}: numbers separated by commas are needed ({error})") from error
    decoding = decode_outcomes(
        design,
        Outcomes.parse(outcomes),
        rates=ErrorRates(false_alarm=false_alarm, misdetection=misdetection),
        strategy=strategy.value,
        prior=prior,
        beta=beta,
        kappa=kappa,
        largest=max_malicious,
    )
    flagged = np.flatnonzero(decoding.flagged).tolist()
    if as_json:
        from fedgt.experiment.result import json_number

        typer.echo(
            json.dumps(
                {
                    "log_odds": [json_number(value) for value in decoding.log_odds.tolist()],
                    "flagged": flagged,
                    "strategy": decoding.strategy,
                    "estimated_malicious": decoding.estimated_malicious,
                    "posterior": [json_number(value) for value in decoding.posterior.tolist()],
                    "status": decoding.status,
                    "reason": decoding.reason,
                    "tied": list(decoding.tied),
                },
                allow_nan=False,
            )
        )
        return
    typer.echo(f"{'client':>6}  {'groups':<18} {'log-odds':>9} {'P(malicious)':>13}")
    for client in range(design.clients):
        groups = " ".join(f"{g}:{outcomes[g]}" for g in design.groups_of(client)) or "none"
        mark = "  flagged" if decoding.flagged[client] else ""
        typer.echo(
            f"{client:>6}  {groups:<18} {decoding.log_odds[client]:>9.3f} {decoding.posterior[client]:>13.4f}{mark}"
        )
    typer.echo(f"{decoding.strategy}: {decoding.reason} (estimated malicious: {decoding.estimated_malicious})")
