"""A run between two rounds as bytes: its state and its rows, in one file that is there as a whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt._version import __version__
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.evidence import STORED
from fedgt.federation.liars import Suspicions
from fedgt.federation.silence import Silences
from fedgt.federation.state import RunState
from fedgt.federation.verdicts import Exclusion, Verdict
from fedgt.grouping import Grouping
from fedgt.packed import label_of, pack, unpack
from fedgt.privacy import Ledger
from fedgt.types import FloatArray, SetEvidence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedRun:
    """All that a process needs to go on with a run; see `RunState` for most of it.

    Attributes:
        spec_hash: Of the run that it is.
        ledger: The account after the round, as JSON. Beside it lies the one that grows within a round.
        halted: Why the run may not go on; empty if it may.
        rows: The rows of the result, as JSON.
        cpu_seconds: What was used until now.
    """

    spec_hash: str
    ledger: str
    halted: str
    rows: str
    cpu_seconds: float
    parameters: Mapping[str, npt.NDArray[Any]]
    round: int
    excluded: frozenset[str]
    verdicts: Mapping[str, Verdict]
    evidence: tuple[SetEvidence, ...]
    heard: Mapping[str, int]
    revealed: tuple[FloatArray, ...]
    tests: int
    next_test: int
    grouping: Grouping | None
    lost: tuple[int, ...]
    decided: Exclusion | None
    suspicions: Suspicions
    silences: Silences
    waiting: frozenset[str]
    odd: frozenset[str]

    def state(self, ledger: Ledger) -> RunState:
        """The state between the rounds, with the account that goes on."""
        return RunState(
            parameters=MappingProxyType(dict(self.parameters)),
            ledger=ledger,
            round=self.round,
            excluded=self.excluded,
            verdicts=MappingProxyType(dict(self.verdicts)),
            evidence=self.evidence,
            heard=MappingProxyType(dict(self.heard)),
            revealed=self.revealed,
            tests=self.tests,
            next_test=self.next_test,
            grouping=self.grouping,
            lost=self.lost,
            decided=self.decided,
            suspicions=self.suspicions,
            silences=self.silences,
            waiting=self.waiting,
            odd=self.odd,
        )

    def ended(self) -> "SavedRun":
        """The same without what only a further test would need: what is not kept cannot leak."""
        return replace(self, evidence=(), heard={}, revealed=(), decided=None, suspicions=Suspicions())

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        return pack(self, _CLASSES, label=__version__)

    @classmethod
    def from_bytes(cls, content: bytes) -> "SavedRun":
        """Read what `to_bytes` wrote.

        Raises:
            SpecError: If it is damaged, or of another version.
        """
        version = label_of(content)
        if version != __version__:
            raise SpecError(f"written by fedgt {version}, this is {__version__}: go on with that version")
        found = unpack(content, _CLASSES)
        if not isinstance(found, cls):
            raise SpecError("no state of a run")
        return found


_CLASSES = (SavedRun, Verdict, Exclusion, Grouping, Design, Suspicions, Silences, *STORED)


def saved(state: RunState, *, spec_hash: str, halted: str, rows: str, cpu_seconds: float) -> SavedRun:
    """What is kept of a run between two rounds."""
    return SavedRun(
        spec_hash=spec_hash,
        ledger=state.ledger.to_json().decode(),
        halted=halted,
        rows=rows,
        cpu_seconds=cpu_seconds,
        parameters={name: np.asarray(values) for name, values in state.parameters.items()},
        round=state.round,
        excluded=state.excluded,
        verdicts=state.verdicts,
        evidence=state.evidence,
        heard=state.heard,
        revealed=state.revealed,
        tests=state.tests,
        next_test=state.next_test,
        grouping=state.grouping,
        lost=state.lost,
        decided=state.decided,
        suspicions=state.suspicions,
        silences=state.silences,
        waiting=state.waiting,
        odd=state.odd,
    )
