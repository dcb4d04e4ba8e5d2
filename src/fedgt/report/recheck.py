"""Would the same record be decided the same way again? And what did each group contribute?

Both are pure functions of what is recorded: outcomes, members and specification. Nothing is trained or opened. Where the
record does not allow it (graded evidence, a design too wide, a strategy without probabilities), the answer says why.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedgt.decode import (
    Decoding,
    ExactDecoder,
    IndependentPrior,
    Prior,
    compile,
    count_prior,
    decode,
    explain,
    ranked_sets,
)
from fedgt.design import Design, from_matrix
from fedgt.errors import FedGTError
from fedgt.federation.kept_evidence import KeptEvidence
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.record.result import json_number
from fedgt.report.recheck_graded import recheck_graded
from fedgt.types import NEGATIVE, POSITIVE, ErrorRates, Outcomes

WIDEST, WIDEST_EXPLAINED = 15, 13
"""Groups that the decoder may hold open at once, to decode the outcomes once and to leave out each group in turn: a report
should take a second or two."""

RANKED = 5
"""Most probable sets listed."""

_AGREE = 1e-6
_DECODABLE = ("count", "delta", "bayes", "map", "published-count", "published-delta")


def recheck(
    result: Mapping[str, Any],
    settings: DecodeSettings | None,
    matches: bool | None,
    screen: ScreenSettings | None = None,
    kept: KeptEvidence | None = None,
) -> dict[str, Any]:
    """Decode the recorded outcomes once more, or decide the kept evidence again.

    Args:
        result: `result.json`.
        settings: How suspects were named in the run.
        matches: Whether the hash of the file that they are from is the recorded one.
        screen: How groups were tested.
        kept: What the tests compared, of graded evidence.

    Returns:
        `status`: `same` (every posterior and every accusation), `different`, or `not-made`; `reason`; and, where they could
        be computed, `largest_difference` (of a posterior), `groups` (per client in the order of `result["clients"]` the
        change of its log-odds by each of its groups, in nats; negative speaks against the client), `nobody` (P(nobody
        malicious | t) and the evidence against it in nats) and `sets` (the most probable sets); else None or empty.
    """
    hindrance = _hindrance(result, settings, matches)
    if hindrance or settings is None:
        return _not_made(hindrance)
    if not is_binary(result["test"]) and screen is None:
        return _not_made("the run folder does not say how groups were tested")
    if screen is not None and not is_binary(result["test"]):
        status, reason, largest = recheck_graded(result, kept, screen, settings)
        return _not_made(reason) | {"status": status, "largest_difference": largest}
    try:
        return _rechecked(result, settings)
    except FedGTError as error:
        return _not_made(str(error))


def _not_made(reason: str) -> dict[str, Any]:
    return {
        "status": "not-made",
        "reason": reason,
        "largest_difference": None,
        "groups": None,
        "nobody": None,
        "sets": [],
    }


def _hindrance(result: Mapping[str, Any], settings: DecodeSettings | None, matches: bool | None) -> str:
    test = result["test"]
    if test is None:
        return "no group test was made"
    if settings is None:
        return "the run folder holds neither spec.toml nor settings.toml"
    if not matches:
        return "the specification in the run folder is not the one of this result"
    if not is_binary(test):
        return ""
    if test["strategy"] not in _DECODABLE:
        return f"strategy {test['strategy']} knows no probabilities"
    if "0" not in test["outcomes"] and "1" not in test["outcomes"]:
        return "no group has an outcome"
    if test["status"] == "contradictory":
        return "the outcomes contradict each other"
    return ""


def is_binary(test: Mapping[str, Any]) -> bool:
    """Whether the decision rests on one bit a group, and not on graded evidence."""
    return bool(test["kind"] != "graded")


def _rechecked(result: Mapping[str, Any], settings: DecodeSettings) -> dict[str, Any]:
    test, clients = result["test"], result["clients"]
    matrix = np.zeros((len(test["groups"]), len(clients)), dtype=np.uint8)
    for column, client in enumerate(clients):
        matrix[client["groups"], column] = 1
    design = from_matrix(matrix, name=test["design"])
    outcomes = Outcomes.parse(test["outcomes"])
    rates = settings.rates
    given = None if settings.prevalence is None else IndependentPrior.uniform(len(clients), settings.prevalence)
    width = ExactDecoder(design, rates, IndependentPrior.uniform(design.clients, 0.5)).width
    if width > WIDEST and settings.method == "exact":
        return _not_made(
            f"decoding holds {width} groups of this design open, too many for a report; see `fedgt decode`"
        )
    found = decode(design, outcomes, prior=given, **{**settings.binary, "strategy": test["strategy"]})
    answer = _compared(found, clients)
    if answer["status"] == "same" and width <= WIDEST_EXPLAINED:
        prior = _prior(design, outcomes, found, given, settings)
        if prior is not None:
            answer |= _contributions(design, outcomes, rates, prior, clients)
    return answer


def _compared(found: Decoding, clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    recorded = np.array([_number(client["posterior"]) for client in clients])
    differences = np.abs(found.posterior - recorded)
    largest = float(np.nanmax(differences, initial=0.0))
    same_numbers = bool((np.isnan(found.posterior) == np.isnan(recorded)).all()) and largest <= _AGREE
    # Ties go to the lower column, and columns are not recorded: any of the tied clients may have been taken.
    wrong = [
        client["id"]
        for column, client in enumerate(clients)
        if client["verdict"] in ("keep", "exclude", "exclude (uncertain)")
        and client["verdict"].startswith("exclude") != bool(found.flagged[column])
        and column not in found.tied
    ]
    if same_numbers and not wrong:
        status, reason = "same", "decoding the recorded outcomes again gives the same posteriors and the same verdicts"
    elif wrong:
        status, reason = "different", f"decoding the recorded outcomes again judges otherwise: {', '.join(wrong)}"
    else:
        status, reason = "different", "decoding the recorded outcomes again gives other posteriors"
    return _not_made(reason) | {"status": status, "largest_difference": largest}


def _prior(
    design: Design, outcomes: Outcomes, found: Decoding, given: IndependentPrior | None, settings: DecodeSettings
) -> Prior | None:
    """What the strategy started from; None when it estimated that nobody is malicious."""
    if given is not None:
        return given
    if found.strategy not in ("bayes", "map"):
        count = found.estimated_malicious
        return IndependentPrior.uniform(design.clients, count / design.clients) if count else None
    return count_prior(design, outcomes, kappa=settings.kappa, largest=settings.max_malicious)


def _contributions(
    design: Design,
    outcomes: Outcomes,
    rates: ErrorRates,
    prior: Prior,
    clients: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    changes = explain(design, outcomes, rates, prior)
    evidence = compile(design, rates, prior).decode(outcomes).log_evidence
    nobody = _nobody(outcomes, rates)
    start = _log_prior_of_nobody(prior)
    posterior = float(np.exp(min(0.0, nobody + start - evidence)))
    # log P(t | somebody) - log P(t | nobody), from P(t) = P(0) P(t | 0) + (1 - P(0)) P(t | somebody).
    against = None
    if posterior < 1.0 and start < 0.0:
        somebody = np.log1p(-posterior) + evidence - np.log1p(-np.exp(start))
        against = json_number(float(somebody - nobody))
    sets = ranked_sets(design, outcomes, rates, prior, count=RANKED)
    return {
        "groups": [
            [
                {"group": group, "outcome": str(outcomes)[group], "change": json_number(change)}
                for group, change in zip(design.groups_of(column), row, strict=True)
            ]
            for column, row in enumerate(changes)
        ],
        "nobody": {"posterior": posterior, "evidence_against": against},
        "sets": [
            {"clients": [clients[column]["id"] for column in one.clients], "probability": one.probability}
            for one in sets
        ],
    }


def _nobody(outcomes: Outcomes, rates: ErrorRates) -> float:
    """Log-probability P(t | nobody malicious): every positive is a false alarm."""
    positives, negatives = (int((outcomes.values == value).sum()) for value in (POSITIVE, NEGATIVE))
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.array([positives, negatives]) * np.log([rates.false_alarm, 1.0 - rates.false_alarm])
    return float(np.nansum(np.where(np.array([positives, negatives]) > 0, parts, 0.0)))


def _log_prior_of_nobody(prior: Prior) -> float:
    with np.errstate(divide="ignore"):
        if isinstance(prior, IndependentPrior):
            return float(np.log1p(-prior.prevalence).sum())
        weights = np.asarray(prior.weights, dtype=np.float64)
        return float(np.log(weights[0] / weights.sum()))


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
