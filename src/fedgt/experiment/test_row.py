"""What is put on record about each test."""

from typing import Any

from fedgt.evidence import GradedDecoding, GradedEvidence
from fedgt.experiment.result import GradedRow, LabelRow, SetRow, TestRow, json_number
from fedgt.experiment.simulation import Simulation
from fedgt.federation import ScreeningRound
from fedgt.screen import ScreenResult


def screening_row(simulation: Simulation, screened: ScreeningRound, number: int) -> TestRow:
    """A test round as it is put on record."""
    grouping = screened.grouping
    groups = tuple(grouping.members(i) for i in range(grouping.design.groups))
    members = {
        int(record.purpose.rpartition("-")[2]): set(record.members)
        for record in screened.result.records
        if record.purpose.startswith("test-group-")
    } or {0: set(screened.result.records[0].members)}
    truth = "".join(str(int(bool(simulation.malicious & members[i]))) for i in range(len(groups)))
    decoding, screen = screened.decoding, screened.screen
    row: dict[str, Any]
    if isinstance(decoding, GradedDecoding):
        row = {"kind": "graded", "outcomes": "", "strategy": "minimum-cost", "utilities": (), "clusters": ()}
        row |= {"estimated_malicious": int(decoding.flagged.sum()), "graded": _graded_row(screened, decoding)}
    else:
        row = {"kind": "binary", "strategy": decoding.strategy, "estimated_malicious": decoding.estimated_malicious}
    if isinstance(screen, ScreenResult):
        row |= {"outcomes": str(screen.outcomes), "clusters": tuple(screen.clusters.tolist())}
        row |= {"utilities": tuple(json_number(v) for v in screen.utilities.tolist())}
    return TestRow(
        round=number,
        truth=truth,
        status=decoding.status,
        reason=screened.exclusion.reason,
        screen_status=screen.status,
        screen_reason=screen.reason,
        projection=tuple(json_number(v) for v in screen.projection.tolist()),
        design=grouping.design.name,
        groups=groups,
        **row,
    )


def _graded_row(screened: ScreeningRound, decoding: GradedDecoding) -> GradedRow:
    clients = screened.grouping.clients
    screen = screened.screen
    evidence = screened.measured.evidence
    label = screened.measured.label
    return GradedRow(
        against_nobody=json_number(decoding.against_nobody),
        count_posterior=tuple(json_number(v) for v in decoding.count.tolist()),
        best_sets=tuple(
            SetRow(clients=tuple(clients[j] for j in one.clients), probability=json_number(one.probability))
            for one in decoding.best
        ),
        attacks=decoding.attacks,
        signal=json_number(evidence.strongest.shift.signal) if isinstance(evidence, GradedEvidence) else None,
        effective_features=json_number(evidence.strongest.shift.effective_features)
        if isinstance(evidence, GradedEvidence)
        else None,
        loss=() if isinstance(screen, ScreenResult) else tuple(json_number(v) for v in screen.loss.tolist()),
        label=None
        if label is None
        else LabelRow(kind=label.kind, labels=label.labels, rises=label.rises, p_values=label.p_values),
    )
