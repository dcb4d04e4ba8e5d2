"""What is put on record about each test."""

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
    binary = screened.screen if isinstance(screened.screen, ScreenResult) else None
    graded = screened.decoding if isinstance(screened.decoding, GradedDecoding) else None
    return TestRow(
        round=number,
        kind="graded" if graded is not None else "binary",
        outcomes="" if binary is None else str(binary.outcomes),
        truth=truth,
        estimated_malicious=int(screened.decoding.flagged.sum())
        if isinstance(screened.decoding, GradedDecoding)
        else screened.decoding.estimated_malicious,
        strategy="minimum-cost" if isinstance(screened.decoding, GradedDecoding) else screened.decoding.strategy,
        status=screened.decoding.status,
        reason=screened.exclusion.reason,
        screen_status=screened.screen.status,
        screen_reason=screened.screen.reason,
        utilities=() if binary is None else tuple(json_number(v) for v in binary.utilities.tolist()),
        projection=tuple(json_number(v) for v in screened.screen.projection.tolist()),
        clusters=() if binary is None else tuple(binary.clusters.tolist()),
        design=grouping.design.name,
        groups=groups,
        graded=None if graded is None else _graded_row(screened, graded),
    )


def _graded_row(screened: ScreeningRound, decoding: GradedDecoding) -> GradedRow:
    clients = screened.grouping.clients
    screen = screened.screen
    evidence = screened.evidence
    label = screened.label
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
