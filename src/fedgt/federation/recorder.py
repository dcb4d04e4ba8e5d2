"""Keeps the record of a run: its rows in memory and, where it has a folder, all that another process needs to go on."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from fedgt.errors import SpecError
from fedgt.federation.history import History
from fedgt.federation.participants import Federation
from fedgt.federation.saved_run import saved
from fedgt.federation.state import Coming, RunState, Step
from fedgt.privacy import Ledger
from fedgt.record.result import RunResult, RunStatus

if TYPE_CHECKING:
    from fedgt.federation.run_folder import RunFolder
    from fedgt.planning import Plan

_log = logging.getLogger(__name__)


def opened(
    folder: "Path | str | RunFolder", federation: Federation, *, resume: bool, named: bool, real: bool
) -> tuple["RunFolder", Federation]:
    """Claim a folder, and keep there from now on what must outlive this process.

    Args:
        folder: Where the run leaves its record.
        federation: Who takes part.
        resume: Go on with the run that is there, if one is.
        named: The run was given a name; otherwise it goes on with the one that it has.
        real: The clients are no simulated ones.

    Raises:
        SpecError: If the folder cannot be used, or holds a run that is not to be gone on with.
    """
    from fedgt.federation.run_folder import RunFolder

    place = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    try:
        if resume:
            place.load()
            if not named and (known := place.name()) is not None:
                federation = replace(federation, run=known)
        elif there := place.there:
            raise SpecError(
                f"{place.path} already holds {', '.join(there)}: go on with the run (resume=True), or take another folder"
            )
        return place, place.of(federation, real=real)
    except BaseException:
        place.close()
        raise


@final
class Recorder:
    """Keeps the record of a run.

    Args:
        federation: Who takes part.
        history: Of the run.
        folder: Claimed for it; None keeps the rows in memory.
        real: The clients are no simulated ones: they never train again for a round, so one that was begun is held or lost.

    Attributes:
        history: As given.
        halted: Why the run may not go on; empty if it may.
    """

    def __init__(self, federation: Federation, history: History, folder: "RunFolder | None", *, real: bool) -> None:
        """Nothing is written yet."""
        self.history = history
        self.halted = ""
        self._federation, self._folder, self._real = federation, folder, real
        self._ended: RunResult | None = None

    def begin(self, first: RunState, *, plan: "Callable[[], Plan | None]", settings: Mapping[str, Any]) -> RunState:
        """The state to begin with: the first, or that of the run in the folder.

        Args:
            first: Before the first round.
            plan: Makes the plan of the first test; its proof takes a while where designs are large.
            settings: Of the run.

        Raises:
            SpecError: If the run in the folder has other settings, or another plan.
        """
        folder = self._folder
        if folder is None:
            return first
        state, made = first, plan()
        if folder.saved is not None:
            if self._real:
                folder.require_same(plan=made, settings=settings)
            state = self._gone_on(folder)
        folder.begin(self.history, plan=made, settings=settings if self._real else None)
        if self._ended is None:
            self._keep(state)
            self._perhaps_end(state)
        return state

    def asks(self, coming: Coming) -> None:
        """A round begins; it is on the disk before anybody is asked."""
        if self._folder is not None:
            self._folder.asks(coming)

    def add(self, step: Step, state: RunState, *, halted: str) -> None:
        """A round is over.

        Args:
            step: The round.
            state: After it.
            halted: Why the run may not go on; empty if it may.
        """
        self.halted = halted
        self.history.add(step, state.verdicts)
        if self._folder is not None:
            self._folder.keep(step, state)
        self._keep(state)
        if self._folder is not None:
            self._folder.round(step)
        self._perhaps_end(state)

    def last(self, state: RunState) -> int:
        """The number of the last round: one that was lost is held under another number."""
        return self.history.heading.rounds + len(state.lost)

    def result(self) -> RunResult:
        """What the run leaves, if it ended now."""
        return self._ended or self.history.result("finished", "")

    def end(self, status: RunStatus, reason: str) -> None:
        """The run is over."""
        self._ended = self.history.result(status, reason)
        if self._folder is not None:
            self._folder.end(self._ended)

    def close(self) -> None:
        """Let others work in the folder; a run that has not ended is interrupted."""
        if self._folder is not None:
            self._folder.close()

    def abandon(self) -> None:
        """Close the folder, and leave nothing of a run that never began."""
        if self._folder is not None:
            self._folder.abandon()

    def _over(self, state: RunState) -> bool:
        return bool(self.halted) or state.round >= self.last(state)

    def _perhaps_end(self, state: RunState) -> None:
        if self.halted:
            self.end("stopped", f"round {state.round}: {self.halted}")
        elif self._over(state):
            self.end("finished", "")

    def _keep(self, state: RunState) -> None:
        """Put the run on the disk as it is now, between two rounds."""
        if self._folder is None:
            return
        run = saved(
            state,
            spec_hash=self.history.heading.spec_hash,
            halted=self.halted,
            rows=self.history.to_json(),
            cpu_seconds=self.history.cpu_seconds,
        )
        self._folder.save(run.ended() if self._over(state) else run)

    def _gone_on(self, folder: "RunFolder") -> RunState:
        """The state of the run in the folder; a round that was under way is lost, and its sums count as opened."""
        run = folder.saved
        assert run is not None  # noqa: S101 - only called with one
        before, ledger = Ledger.from_json(run.ledger.encode(), folder.path), self._federation.ledger
        ledger.merge(before)
        self.history.restore(run.rows, run.between["verdicts"], run.cpu_seconds)
        self.halted, self._ended = run.halted, folder.result
        state = run.state(ledger)
        number, purpose = folder.under_way()
        if not self._real or number <= state.round:
            return state
        # Written ahead of every agreement, the ledger has it all; a copy that was put back from yesterday has not.
        signed = self._federation.agreements
        for link in () if signed is None else signed.links:
            if (link.run, link.task) == (self._federation.run, "mean"):
                ledger.admit(link.rows, models=link.model, test=link.purpose == "test")
        self.history.lose(number, purpose, ledger.since(before))
        _log.warning("round %d was lost when the server stopped; its sums count as opened", number)
        later = state.next_test + 1 if state.next_test else 0
        return replace(state, round=number, lost=(*state.lost, number), next_test=later)
