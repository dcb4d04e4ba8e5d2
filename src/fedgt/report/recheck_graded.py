"""Would graded evidence be decided the same way again? From what the tests compared, which the run folder keeps.

Nothing is trained or opened. Every test is decided once more with what was known by then; what it said about the clients
whose verdict it gave is compared with the record.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedgt.design import from_matrix
from fedgt.errors import FedGTError
from fedgt.evidence import GradedDecoding
from fedgt.evidence.sets import MAX_SETS
from fedgt.federation import Exclusion, exclude, from_posterior
from fedgt.federation.kept_evidence import KeptEvidence, KeptTest
from fedgt.federation.look import Look
from fedgt.federation.measure import suspects
from fedgt.federation.open_tests import OpenTests, both_ways
from fedgt.federation.schedule import Standing
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.grouping import Grouping
from fedgt.planning.ties import set_count
from fedgt.types import SetEvidence

_AGREE = 1e-6

_MOST_SETS, _SEARCHED = 3_000_000, 300_000
"""Sets of clients over all tests that are scored again; more take longer than a report should. Where there are more than can
be scored at all the best are searched for, which takes as long as scoring so many."""


def recheck_graded(
    result: Mapping[str, Any], kept: KeptEvidence | None, screen: ScreenSettings, decoding: DecodeSettings
) -> tuple[str, str, float | None]:
    """Decide the kept evidence once more.

    Returns:
        Status (`same`, `different` or `not-made`), reason, and the largest difference of a posterior.
    """
    if kept is None:
        return "not-made", "the run folder does not hold what the tests compared (evidence.npz)", None
    rounds = [one["round"] for one in result["tests"]]
    tests = [one for one in kept.tests if one.round in rounds]
    if [one.round for one in tests] != rounds:
        return "not-made", "evidence.npz does not hold the tests of this result", None
    clients = [client["id"] for client in result["clients"]]
    sets = set_count(len(clients), decoding.largest_graded(len(clients), screen.features))
    sets = _SEARCHED if sets > MAX_SETS else sets
    if sets * len(tests) > _MOST_SETS:
        return "not-made", f"to decide it again, {sets} sets of clients are scored, too many for a report", None
    try:
        return _compared(result, tests, screen, decoding)
    except (FedGTError, ValueError) as error:
        return "different", f"what the run folder holds cannot be decided again: {error}", None


def _compared(
    result: Mapping[str, Any], tests: Sequence[Any], screen: ScreenSettings, decoding: DecodeSettings
) -> tuple[str, str, float | None]:
    recorded = {client["id"]: client for client in result["clients"]}
    rows = result["tests"]
    evidence: list[SetEvidence] = []
    before: Exclusion | None = None
    rounds = result["rounds_planned"] or len(result["rounds"])
    every = Standing.of(screen, decoding, rounds=rounds, tested=True, secret=0)  # nothing is drawn again
    told, known = 0, 0
    looks: dict[int, Look] = {}
    largest, wrong, other = 0.0, [], []
    for test, row in zip(tests, rows, strict=True):
        clients = test.clients
        if set(clients) != set(recorded) if every is None else not set(clients) <= set(recorded):
            return "different", "the kept evidence is about other clients", None
        look = Look() if every is None else every.judging(told)
        # In every round each test stands for itself; a fault with somebody in it who was left out before is explained.
        missing = test.faults if every is None else [one for one in test.faults[known:] if one <= set(clients)]
        here = [] if test.evidence is None else [test.evidence]
        evidence = [*evidence, *here] if every is None else here
        told, known = told + len(here), len(test.faults)
        faults = np.array([[client in one for client in clients] for one in missing], dtype=np.bool_)
        settings = look.settings(decoding)
        looks[test.round] = look
        several = _open_tests(test, tests)
        found = suspects(evidence, len(clients), screen=screen, decoding=settings, faults=faults)
        found = look.controlled(found, settings.nobody)
        if several is not None:
            first = looks[several.rounds[0]]
            together = partial(_together, several, first, screen, first.settings(decoding))
            found = both_ways(found, several, clients, together)
        matrix = np.array([[client in group for client in clients] for group in row["groups"]], dtype=np.uint8)
        grouping = Grouping(design=from_matrix(matrix, name=row["design"]), clients=clients)
        everybody = dict.fromkeys(clients, 1)  # who was in no sum is told apart by its recorded verdict
        finding = from_posterior(grouping, np.ones(len(matrix), dtype=np.bool_), found, everybody)
        decision = exclude(grouping, finding, settings)
        if before is not None and finding.undecidable:
            decision = before
        before = decision
        for verdict in decision.verdicts:
            said = recorded[verdict.client]
            if verdict.client not in test.judged:
                continue
            # Log-odds, because two posteriors near 1 are alike whatever they come from.
            if not np.isclose(_number(said["log_odds"]), verdict.log_odds, rtol=_AGREE, atol=_AGREE, equal_nan=True):
                other.append(verdict.client)
            was = _number(said["posterior"])
            if np.isnan(was) != np.isnan(verdict.posterior) or abs(was - verdict.posterior) > _AGREE:
                other.append(verdict.client)
            elif not np.isnan(was):
                largest = max(largest, abs(was - verdict.posterior))
            if said["verdict"] != "untested" and _plain(said["verdict"]) != _plain(verdict.verdict):
                wrong.append(verdict.client)
    if wrong:
        return "different", f"deciding the kept evidence again judges otherwise: {', '.join(wrong)}", largest
    if other:
        return (
            "different",
            f"deciding the kept evidence again gives other posteriors: {', '.join(dict.fromkeys(other))}",
            largest,
        )
    return "same", "deciding the kept evidence again gives the same posteriors and the same verdicts", largest


def _open_tests(test: KeptTest, tests: Sequence[KeptTest]) -> OpenTests | None:
    """The tests that one was judged together with, with itself; None if it was judged alone."""
    if not test.together:
        return None
    by_round = {one.round: one for one in tests}
    evidence = [
        by_round[round].evidence if by_round[round].added is None else by_round[round].added for round in test.together
    ]
    return OpenTests(
        clients=test.columns, evidence=tuple(one for one in evidence if one is not None), rounds=test.together
    )


def _together(tests: OpenTests, look: Look, screen: ScreenSettings, decoding: DecodeSettings) -> GradedDecoding:
    return look.controlled(
        suspects(tests.evidence, len(tests.clients), screen=screen, decoding=decoding), decoding.nobody
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _plain(verdict: str) -> str:
    """Who is left out of those whom the tests cannot tell depends on whether a further test followed."""
    return "undecided" if verdict == "exclude (uncertain)" else verdict
