"""A run between two rounds as bytes: its state and its rows, in one file that is there as a whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fedgt._version import __version__
from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.evidence import STORED
from fedgt.federation.first_look import FirstLook
from fedgt.federation.liars import Suspicions
from fedgt.federation.open_tests import OpenTests
from fedgt.federation.silence import Silences
from fedgt.federation.state import RunState
from fedgt.federation.trial import Trial
from fedgt.federation.verdicts import Exclusion, Verdict
from fedgt.grouping import Grouping
from fedgt.packed import label_of, pack, unpack
from fedgt.privacy import Ledger


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedRun:
    """All that a process needs to go on with a run.

    Attributes:
        spec_hash: Of the run that it is.
        ledger: The account after the round, as JSON. Beside it lies the one that grows within a round.
        halted: Why the run may not go on; empty if it may.
        rows: The rows of the result, as JSON.
        cpu_seconds: What was used until now.
        between: The fields of `RunState`, but for its ledger.
    """

    spec_hash: str
    ledger: str
    halted: str
    rows: str
    cpu_seconds: float
    between: Mapping[str, Any]

    def state(self, ledger: Ledger) -> RunState:
        """The state between the rounds, with the account that goes on."""
        frozen: dict[str, Any] = {
            name: MappingProxyType(one) if isinstance(one, dict) else one for name, one in self.between.items()
        }
        return RunState(ledger=ledger, **frozen)

    def ended(self) -> "SavedRun":
        """The same without what only a further test would need: what is not kept cannot leak."""
        nothing: dict[str, Any] = {
            "evidence": (),
            "heard": {},
            "revealed": (),
            "decided": None,
            "suspicions": Suspicions(),
            "looks": (),
            "usual": (),
            "open_tests": None,
            "trials": {},
            "home": None,
            "safe": None,
        }
        return replace(self, between={**self.between, **nothing})

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
        if not isinstance(found, cls) or set(found.between) != set(_BETWEEN):
            raise SpecError("no state of a run")
        return found


_CLASSES = (SavedRun, Verdict, Exclusion, Grouping, Design, Suspicions, Silences, FirstLook, Trial, OpenTests, *STORED)
_BETWEEN = tuple(field.name for field in fields(RunState) if field.name != "ledger")


def saved(state: RunState, *, spec_hash: str, halted: str, rows: str, cpu_seconds: float) -> SavedRun:
    """What is kept of a run between two rounds."""
    model = {name: np.asarray(values) for name, values in state.parameters.items()}
    return SavedRun(
        spec_hash=spec_hash,
        ledger=state.ledger.to_json().decode(),
        halted=halted,
        rows=rows,
        cpu_seconds=cpu_seconds,
        between={name: getattr(state, name) for name in _BETWEEN} | {"parameters": model},
    )
