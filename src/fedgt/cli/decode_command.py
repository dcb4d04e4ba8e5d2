"""`fedgt decode`: who is malicious, given the outcomes of the group tests?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgt.cli.run_options import given, option_of

if TYPE_CHECKING:
    from fedgt.decode import IndependentPrior, Prior
    from fedgt.design import Design
    from fedgt.federation.settings import DecodeSettings
    from fedgt.types import Outcomes


_MORE = ("ranked", "bp")
"""Beside the strategies: whole sets, and `bayes` by belief propagation."""


def _strategies() -> list[str]:
    from fedgt.decode import STRATEGIES

    return [*STRATEGIES, *_MORE]


def decode(
    matrix: Annotated[
        Path, typer.Option(help="CSV or JSON file with the assignment matrix: one row of 0,1 per group.")
    ],
    outcomes: Annotated[
        str | None, typer.Option(help="One character per group: 0 negative, 1 positive, ? erased.")
    ] = None,
    batch: Annotated[
        Path | None, typer.Option(help="A file with many outcome vectors instead, one a line, with or without commas.")
    ] = None,
    prevalence: Annotated[float | None, option_of("prevalence")] = None,
    priors: Annotated[str | None, typer.Option(help="One prevalence per client instead, separated by commas.")] = None,
    false_alarm: Annotated[float | None, option_of("false_alarm")] = None,
    misdetection: Annotated[float | None, option_of("misdetection")] = None,
    strategy: Annotated[
        str | None,
        option_of(
            "strategy",
            " Or `ranked`, which lists whole sets, or `bp`, which is bayes by belief propagation.",
            autocompletion=_strategies,
        ),
    ] = None,
    beta: Annotated[float | None, option_of("beta")] = None,
    kappa: Annotated[float | None, option_of("kappa")] = None,
    max_malicious: Annotated[int | None, option_of("max_malicious")] = None,
    estimator: Annotated[str | None, option_of("estimator")] = None,
    clean_group: Annotated[
        bool, typer.Option("--some-group-clean", help="Calibrate `delta` without sets that contaminate every group.")
    ] = False,
    sets: Annotated[int, typer.Option(help="How many sets `ranked` lists.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Which groups speak for and against each client.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (a batch: one a line).")] = False,
) -> None:
    """Decode outcomes: log-odds (benign against malicious, in nats) and the flagged clients, numbered from 0."""
    from fedgt.design import read_design
    from fedgt.errors import ContradictoryOutcomesError, SpecError
    from fedgt.federation.settings import DecodeSettings

    if (outcomes is None) == (batch is None):
        raise SpecError("give --outcomes (one vector) or --batch (a file with many)")
    if batch is not None and not as_json and (explain or strategy == "ranked"):
        raise SpecError("--batch prints the flagged clients only; take --json for --explain or --strategy ranked")
    design = read_design(matrix)
    prior = _prior(design, prevalence, priors)
    settings = DecodeSettings(
        **given(
            strategy={"bp": "bayes", "ranked": "map"}.get(strategy or "", strategy),
            method="belief-propagation" if strategy == "bp" else None,
            false_alarm=false_alarm,
            misdetection=misdetection,
            beta=beta,
            kappa=kappa,
            max_malicious=max_malicious,
            estimator=estimator,
        )
    )
    said = strategy if strategy in _MORE else settings.binary_strategy
    for text in [outcomes] if outcomes is not None else _lines(batch, design):
        try:
            answer = {**_answer(design, text or "", prior, settings, not clean_group), "strategy": said}
            if said == "ranked":
                answer["sets"] = _ranked(design, text or "", prior, settings, sets)
            if explain:
                answer["explanation"] = _explanation(design, text or "", prior, settings)
        except ContradictoryOutcomesError as error:
            if batch is None:
                raise
            answer = {"outcomes": text, "flagged": [], "status": "contradictory", "reason": str(error)}
        if as_json:
            typer.echo(json.dumps(answer, allow_nan=False))
        elif batch is not None:
            typer.echo(f"{text},{' '.join(map(str, answer['flagged']))}")
        else:
            _print(design, text or "", answer)


def _prior(design: "Design", prevalence: float | None, priors: str | None) -> "IndependentPrior | None":
    import numpy as np

    from fedgt.decode import IndependentPrior
    from fedgt.errors import SpecError

    if prevalence is not None and priors is not None:
        raise SpecError("give --prevalence (one for all) or --priors (one per client), not both")
    if prevalence is not None:
        return IndependentPrior.uniform(design.clients, prevalence)
    if priors is None:
        return None
    try:
        values = np.array([float(part) for part in priors.split(",")])
    except ValueError as error:
        raise SpecError(f"--priors {priors!r}: numbers separated by commas are needed ({error})") from error
    return IndependentPrior(prevalence=values)


def _lines(path: Path | None, design: "Design") -> list[str]:
    """All outcome vectors of a file, checked before the first is answered."""
    from fedgt.errors import SpecError
    from fedgt.text_file import read_text
    from fedgt.types import Outcomes

    if path is None:
        return []
    lines = read_text(path, "outcomes file").splitlines()
    texts = []
    for number, line in enumerate(lines, start=1):
        text = line.replace(",", "").replace(" ", "")
        if not text:
            continue
        try:
            Outcomes.parse(text)
        except SpecError as error:
            raise SpecError(f"{path} line {number}: {error}") from error
        if len(text) != design.groups:
            raise SpecError(f"{path} line {number}: {len(text)} outcomes for a design with {design.groups} groups")
        texts.append(text)
    if not texts:
        raise SpecError(f"outcomes file {path}: no outcomes found")
    return texts


def _answer(
    design: "Design", text: str, prior: "IndependentPrior | None", settings: "DecodeSettings", contaminated: bool
) -> dict[str, Any]:
    import numpy as np

    from fedgt.decode import decode as decode_outcomes
    from fedgt.record.result import json_number
    from fedgt.types import Outcomes

    decoding = decode_outcomes(design, Outcomes.parse(text), prior=prior, contaminated=contaminated, **settings.binary)
    return {
        "log_odds": [json_number(value) for value in decoding.log_odds.tolist()],
        "flagged": np.flatnonzero(decoding.flagged).tolist(),
        "estimated_malicious": decoding.estimated_malicious,
        "posterior": [json_number(value) for value in decoding.posterior.tolist()],
        "status": decoding.status,
        "reason": decoding.reason,
        "tied": list(decoding.tied),
        "exact": decoding.exact,
        "outcomes": text,
    }


def _bayes_prior(
    design: "Design", outcomes: "Outcomes", prior: "IndependentPrior | None", settings: "DecodeSettings"
) -> "Prior":
    from fedgt.decode import CountPrior, count_prior

    if prior is not None:
        return prior
    if settings.max_malicious is None and not outcomes.present.any():
        return CountPrior.uniform(design.clients)
    return count_prior(design, outcomes, kappa=settings.kappa, largest=settings.max_malicious)


def _ranked(
    design: "Design", text: str, prior: "IndependentPrior | None", settings: "DecodeSettings", count: int
) -> list[dict[str, Any]]:
    from fedgt.decode import ranked_sets
    from fedgt.types import Outcomes

    outcomes = Outcomes.parse(text)
    if not outcomes.present.any():
        return []
    used = _bayes_prior(design, outcomes, prior, settings)
    return [
        {"clients": list(one.clients), "probability": one.probability}
        for one in ranked_sets(design, outcomes, settings.rates, used, count=count)
    ]


def _explanation(
    design: "Design", text: str, prior: "IndependentPrior | None", settings: "DecodeSettings"
) -> list[list[dict[str, Any]]]:
    from fedgt.decode import explain
    from fedgt.record.result import json_number
    from fedgt.types import Outcomes

    outcomes = Outcomes.parse(text)
    used = _bayes_prior(design, outcomes, prior, settings)
    rows = explain(design, outcomes, settings.rates, used, method=settings.method)
    return [
        [
            {"group": group, "outcome": text[group], "log_odds_change": json_number(change)}
            for group, change in zip(design.groups_of(client), row, strict=True)
        ]
        for client, row in enumerate(rows)
    ]


def _print(design: "Design", outcomes: str, answer: dict[str, Any]) -> None:
    import numpy as np

    typer.echo(f"{'client':>6}  {'groups':<18} {'log-odds':>9} {'P(malicious)':>13}")
    for client in range(design.clients):
        groups = " ".join(f"{g}:{outcomes[g]}" for g in design.groups_of(client)) or "none"
        mark = "  flagged" if client in answer["flagged"] else ""
        log_odds, posterior = (_number(answer[key][client]) for key in ("log_odds", "posterior"))
        typer.echo(f"{client:>6}  {groups:<18} {log_odds:>9.3f} {posterior:>13.4f}{mark}")
        for part in answer.get("explanation", [[]] * design.clients)[client]:
            change = _number(part["log_odds_change"])
            side = "against" if change < 0 else "for"
            alone = "changes nothing: it is as certain without it" if np.isinf(log_odds) else "says nothing about it"
            said = f"speaks {side} it: {change:+.3f} nats" if change else alone
            typer.echo(f"{'':>8}group {part['group']} ({part['outcome']}) {said}")
    for one in answer.get("sets", []):
        typer.echo(f"  {one['probability']:.4f}  {' '.join(map(str, one['clients'])) or 'nobody'}")
    typer.echo(f"{answer['strategy']}: {answer['reason']} (estimated malicious: {answer['estimated_malicious']})")


def _number(value: float | str | None) -> float:
    return float("nan") if value is None else float(value)
