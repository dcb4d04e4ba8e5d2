"""What a run has done until now, as the rows of its result: kept for every run, in memory, and written by `RunFolder`."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from fedgt._version import __version__
from fedgt.errors import SpecError
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.rfa import GENERAL_POSITION
from fedgt.federation.rows import client_rows, privacy_row, test_row
from fedgt.federation.state import Step
from fedgt.federation.verdicts import Verdict
from fedgt.record.result import (
    AggregateRow,
    ClientRow,
    Heading,
    ReadmissionRow,
    RoundRow,
    RunResult,
    RunStatus,
    TestRow,
    Truth,
)
from fedgt.screen import balanced_accuracy, top1_accuracy
from fedgt.types import Parameters


class Accuracies(NamedTuple):
    """How good a model is: fractions from 0 to 1, None where nobody knows."""

    top1: float | None
    balanced: float | None
    attack: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Witness:
    """What only a simulation knows. It goes into the record of the run; nothing that decides is ever given it.

    Attributes:
        heading: Which run it is.
        truth: Client -> what it really is.
        accuracies: Of a model, on the test set.
    """

    heading: Heading
    truth: Mapping[str, Truth]
    accuracies: Callable[[Parameters], Accuracies]


class _Rows(BaseModel):
    """The rows between two sessions of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: tuple[RoundRow, ...]
    tests: tuple[TestRow, ...]
    aggregates: tuple[AggregateRow, ...]
    readmissions: tuple[ReadmissionRow, ...] = ()
    warnings: tuple[str, ...]


@final
class History:
    """The rows of a run, which only grow.

    Args:
        federation: Who takes part; its ledger is the account.
        heading: Which run it is.
        validation: What models are measured on without a witness; None measures nothing.
        excluded: Who is left out from the beginning.
        witness: What a simulation knows.

    Attributes:
        heading: As given.
        rounds: One row a finished round.
        tests: One row a test round.
    """

    def __init__(
        self,
        federation: Federation,
        heading: Heading,
        *,
        validation: Validation | None,
        excluded: Collection[str] = (),
        witness: Witness | None = None,
    ) -> None:
        """Nothing has happened yet."""
        self.heading = heading
        self.rounds: list[RoundRow] = []
        self.tests: list[TestRow] = []
        self._federation, self._validation, self._witness = federation, validation, witness
        self._excluded = frozenset(excluded)
        self._aggregates: list[AggregateRow] = []
        self._readmissions: list[ReadmissionRow] = []
        self._warnings: list[str] = []
        self._verdicts: Mapping[str, Verdict] = {}
        self._began, self._before = time.process_time(), 0.0

    def add(self, step: Step, verdicts: Mapping[str, Verdict]) -> None:
        """A round is over.

        Args:
            step: The round.
            verdicts: What is decided about each client by now.
        """
        measured = self._measured(step.parameters)
        self.rounds.append(
            RoundRow(
                round=step.round,
                top1_accuracy=measured.top1,
                balanced_accuracy=measured.balanced,
                attack_accuracy=measured.attack,
                secure_sums=step.result.secure_sums,
                bytes_up=step.result.bytes_up,
                bytes_down=step.result.bytes_down,
                participants=len(step.members),
                purpose=step.purpose,
            )
        )
        self._aggregates += [
            AggregateRow.model_validate(record, from_attributes=True) for record in step.result.records
        ]
        self._warnings += [warning for warning in step.result.warnings if warning not in self._warnings]
        self._verdicts = verdicts
        self._readmissions += [
            ReadmissionRow(client=client, round=step.round, named_in=one.named_in, cleared_in=one.cleared_in)
            for client, one in step.readmitted.items()
        ]
        if step.screening is not None:
            self.tests.append(test_row(step.screening, step.round, self._malicious))
            self._warnings += step.warnings

    @property
    def cpu_seconds(self) -> float:
        """CPU time until now, clients of this process and earlier sessions included."""
        return self._before + time.process_time() - self._began

    def to_json(self) -> str:
        """The rows, for `restore`."""
        kept = _Rows(
            rounds=tuple(self.rounds),
            tests=tuple(self.tests),
            aggregates=tuple(self._aggregates),
            readmissions=tuple(self._readmissions),
            warnings=tuple(self._warnings),
        )
        return kept.model_dump_json()

    def restore(self, rows: str, verdicts: Mapping[str, Verdict], cpu_seconds: float) -> None:
        """Take over what an earlier session of the run has done.

        Raises:
            SpecError: If these are no rows.
        """
        try:
            kept = _Rows.model_validate_json(rows)
        except ValidationError as error:
            raise SpecError(f"the rows of the run cannot be read: {error.errors()[0]['msg']}") from error
        self.rounds, self.tests = list(kept.rounds), list(kept.tests)
        self._aggregates, self._warnings = list(kept.aggregates), list(kept.warnings)
        self._readmissions = list(kept.readmissions)
        self._verdicts, self._before = verdicts, cpu_seconds

    def lose(self, round: int, purpose: str, opened: Sequence[tuple[str, Mapping[str, float]]]) -> None:
        """A round was under way when the server stopped: whatever it asked for counts as opened.

        Args:
            round: Its number.
            purpose: What it was for.
            opened: The hash of the global model and client -> weight, of each sum that the ledger had permitted.
        """
        known = (
            f"{len(opened)} sums may have been opened, and count as opened" if opened else "the account is as it was"
        )
        self._warnings.append(f"round {round} ({purpose}) was lost: the server stopped in it; {known}")
        weighed = self.heading.method != "rfa"  # otherwise only the clients know the weights
        self._aggregates += [
            AggregateRow(
                round=round,
                purpose=f"{purpose}, lost",
                members=tuple(row),
                weights=tuple(row.values()) if weighed else (),
                status="open",
                reason="the server stopped in this round; what it may have opened counts as opened",
                dropped={},
                model=model,
            )
            for model, row in opened
        ]

    @property
    def clients(self) -> tuple[ClientRow, ...]:
        """What is decided about each client by now."""
        return client_rows(
            tuple(self._federation.samples),
            self._verdicts,
            self.tests[-1].groups if self.tests else (),
            excluded=self._excluded,
            truth={} if self._witness is None else self._witness.truth,
        )

    def result(self, status: RunStatus, reason: str) -> RunResult:
        """The result, if the run ended now."""
        return RunResult(
            version=__version__,
            spec_hash=self.heading.spec_hash,
            seed=self.heading.seed,
            method=self.heading.method,
            status=status,
            reason=reason,
            clients=self.clients,
            rounds=tuple(self.rounds),
            rounds_planned=self.heading.rounds,
            measured_on="validation set" if self._witness is None else "test set",
            aggregates=tuple(self._aggregates),
            privacy=privacy_row(self._federation, GENERAL_POSITION if self.heading.method == "rfa" else ""),
            test=self.tests[-1] if self.tests else None,
            tests=tuple(self.tests),
            readmissions=tuple(self._readmissions),
            warnings=tuple(self._warnings),
            cpu_seconds=self.cpu_seconds,
        )

    @property
    def _malicious(self) -> frozenset[str] | None:
        if self._witness is None:
            return None
        return frozenset(client for client, truth in self._witness.truth.items() if truth == "malicious")

    def _measured(self, parameters: Parameters) -> Accuracies:
        if self._witness is not None:
            return self._witness.accuracies(parameters)
        if self._validation is None:
            return Accuracies(None, None, None)
        predicted, labels = self._validation.predict(parameters), np.asarray(self._validation.labels)
        return Accuracies(top1_accuracy(predicted, labels), balanced_accuracy(predicted, labels), None)
