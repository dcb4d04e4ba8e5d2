"""When groups are tested, with which rows, and what is put on record about each test."""

from collections import Counter
from dataclasses import replace

import numpy as np

from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.evidence import GradedDecoding, GradedEvidence, MarginEvidence
from fedgt.experiment.result import GradedRow, LabelRow, SetRow, TestRow, json_number
from fedgt.experiment.simulation import Simulation
from fedgt.experiment.spec import ExperimentSpec
from fedgt.federation.next_rows import next_rows
from fedgt.federation.round import ScreeningRound
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult
from fedgt.types import FloatArray

_ROWS = 5  # the stream of the seed that chooses further rows; see `simulation`


class ScreeningPlan:
    """Which round is a test round: the first by the specification, further ones while clients stay undecided."""

    def __init__(self, spec: ExperimentSpec, simulation: Simulation) -> None:
        """Start with the specified test round."""
        self._spec = spec
        self._simulation = simulation
        self._grouping = simulation.grouping
        self._done = 0
        self._revealed: list[FloatArray] = []
        self._gone: set[str] = set()
        self.next_test = spec.screen.round
        self.evidence: tuple[GradedEvidence | MarginEvidence, ...] = ()
        self.heard: Counter[str] = Counter()

    @property
    def grouping(self) -> Grouping:
        """Who shares a group in the next test round.

        Raises:
            SpecError: If the method has no groups.
        """
        if self._grouping is None:
            raise SpecError("method 'fedgt' needs a design")
        return self._grouping

    @property
    def last(self) -> bool:
        """Whether no test round can follow the next one."""
        return self._done + 1 >= self._spec.screen.most_rounds or self.next_test >= self._spec.federation.rounds

    def after(self, screening: ScreeningRound, number: int) -> ScreeningRound:
        """Decide whether another test round follows, and with which rows; if none can, undecided clients are decided now."""
        self._done += 1
        if screening.evidence is not None:
            self.evidence = (*self.evidence, screening.evidence)
            self.heard.update(screening.heard)
        self._revealed += _test_rows(screening)
        self._gone |= set(screening.exclusion.excluded)
        again = screening.undecided and self._spec.decode.on_undecided == "test-again"
        if not again or self._done >= self._spec.screen.most_rounds or screening.exclusion.halt:
            return screening
        design = self._further(screening) or self._repeated(screening)
        if design is None:
            settled = replace(screening, exclusion=screening.final)
            self._gone |= set(settled.exclusion.excluded)
            return settled
        self._grouping = Grouping(design=design, clients=screening.grouping.clients)
        self.next_test = number + 1
        return screening

    def _further(self, screening: ScreeningRound) -> Design | None:
        decoding = screening.decoding
        if not isinstance(decoding, GradedDecoding):
            return None
        clients = screening.grouping.clients
        federation = self._simulation.federation
        weights = np.array([federation.weight(client) for client in clients], dtype=np.float64)
        sets = np.zeros((len(decoding.best), len(clients)), dtype=np.bool_)
        for row, one in enumerate(decoding.best):
            sets[row, list(one.clients)] = True
        if not self._revealed:
            return None
        return next_rows(
            np.array(self._revealed),
            sets,
            [one.probability for one in decoding.best],
            privacy=federation.ledger.promised,
            rows=self._spec.screen.more_groups,
            allowed=np.array([client not in self._gone for client in clients]),
            weights=weights,
            rng=np.random.default_rng([self._spec.seed, _ROWS]),
        )

    def _repeated(self, screening: ScreeningRound) -> Design | None:
        """Rows that were revealed already, of clients that are all still there; None where too few are left to compare.

        Where no further rows keep the promise, these cost no privacy and still average noise away.
        """
        gone = np.array([client in self._gone for client in screening.grouping.clients])
        rows = np.unique([row > 0 for row in self._revealed if not row[gone].any()], axis=0)
        if len(rows) < 3:
            return None
        return Design(
            matrix=rows.astype(np.uint8), name=f"repeated-{len(gone)}x{len(rows)}", source="rows of earlier test rounds"
        )


def _test_rows(screening: ScreeningRound) -> list[FloatArray]:
    """The real rows of the test sums that were opened, float64[clients] each."""
    column = {client: j for j, client in enumerate(screening.grouping.clients)}
    rows = []
    for record in screening.result.records:
        if record.status == "open" and record.purpose.startswith("test"):
            rows.append(np.zeros(len(column)))
            rows[-1][[column[client] for client in record.members]] = record.weights
    return rows


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
