"""The folder of a run, real or simulated: one process at a time, files for their owner only, each whole or not at all.

| file | what it is |
|---|---|
| `plan.json` | who shares a group, and what is promised; not without tests |
| `settings.toml` | all other settings of a real run; a simulation has its `spec.toml` |
| `ledger.json` | what was opened, on the disk before it is; of a real run |
| `agreements/` | what the clients have signed, with identities |
| `state.npz` | the run after its last round; of a real run that has ended, the model and who is out |
| `under-way.json` | the last round that was begun; of a real run |
| `progress.json` | how far the run is; gone when it has ended |
| `rounds.csv`, `log` | as they grow |
| `evidence.npz` | what the tests compared, so that the report can decide once more |
| `result.json` | written last: where it is, the run has ended |

No sum and no client's model is in any of them; of sums `evidence.npz` has scalar products, losses and scores.
What a simulation has sent it sends again: it is gone on with from
`state.npz` alone, repeats the round that was under way, and keeps nothing of it at its end.
"""

import json
import logging
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import tomli_w
from pydantic import ValidationError

from fedgt import strict_json
from fedgt._version import __version__
from fedgt.durable_file import write_durably
from fedgt.errors import SpecError
from fedgt.federation.history import History
from fedgt.federation.kept_evidence import FILE as EVIDENCE
from fedgt.federation.kept_evidence import keep_test
from fedgt.federation.participants import Federation
from fedgt.federation.run_settings import HOW_IT_IS_DONE
from fedgt.federation.saved_run import SavedRun
from fedgt.federation.state import Coming, RunState, Step
from fedgt.options import differing
from fedgt.planning.plan_file import Plan, plan_text
from fedgt.record.claim import FILE as LOG
from fedgt.record.claim import PROGRESS, Claim
from fedgt.record.progress import ProgressFile
from fedgt.record.result import RunResult, write_result, write_rounds
from fedgt.secagg import AgreementLog
from fedgt.text_file import read_content, read_text

PLAN, SETTINGS, RESULT = "plan.json", "settings.toml", "result.json"
LEDGER, STATE, UNDER_WAY = "ledger.json", "state.npz", "under-way.json"
AGREEMENTS = "agreements"

FILES = (
    *(PLAN, SETTINGS, LEDGER, STATE, UNDER_WAY, PROGRESS, RESULT),
    *(EVIDENCE, "rounds.csv", "report.html", "report.json"),
)
"""What a run leaves, or left, beside its log."""


@final
class RunFolder:
    """The folder of a run, claimed for this process until `close`.

    Args:
        path: Made if it does not exist (mode 0700), and its parents.

    Attributes:
        path: As given.
        saved: The run that it holds; None where none has begun.
        result: Its result, if it has ended.

    Raises:
        SpecError: If another process works there, the folder cannot be used, or a file in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        """Claim it, and log into it from now on."""
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claim = Claim(path)
            self._handler = logging.FileHandler(path / LOG, mode="a", encoding="utf-8")
        except OSError as error:
            raise SpecError(f"run folder {path}: {error}") from error
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("fedgt")
        self._level = logger.level
        logger.addHandler(self._handler)
        logger.setLevel(min(self._level or logging.INFO, logging.INFO))
        self._history: History | None = None
        self._progress: ProgressFile | None = None
        self._real = True
        self.saved: SavedRun | None = None
        self.result: RunResult | None = None

    @property
    def there(self) -> list[str]:
        """Which files of a run it holds."""
        return [name for name in FILES if (self.path / name).exists()]

    def clear(self) -> None:
        """Remove what a run left, and nothing else: never an old result beside a new plan. The log is emptied."""
        (self.path / LOG).write_bytes(b"")  # it stays: it is locked
        for name in (*FILES, f"{LEDGER}.lock"):
            (self.path / name).unlink(missing_ok=True)
        self._sweep()

    def load(self) -> None:
        """Read the run that it holds, to go on with it.

        Raises:
            SpecError: If a file is damaged, or of another version.
        """
        self._sweep()
        try:
            if (self.path / STATE).exists():
                self.saved = SavedRun.from_bytes((self.path / STATE).read_bytes())
            if (self.path / RESULT).exists():
                self.result = RunResult.model_validate_json(read_text(self.path / RESULT, "result"))
        except (OSError, SpecError, ValidationError) as error:
            raise SpecError(f"the run in {self.path} cannot be gone on with: {error}") from error

    def of(self, federation: Federation, *, real: bool) -> Federation:
        """The same federation, whose stages are noted here.

        Of a real run what must outlive the process lies here, too: its account, and what clients have signed. If they lie in
        files elsewhere they stay there: several runs may share them.
        """
        told, self._real = federation.on_stage, real

        def staged(*event: Any) -> None:
            if self._progress is not None:
                self._progress.stage(*event)
            if told is not None:
                told(*event)

        federation = replace(federation, on_stage=staged)
        signed = federation.agreements
        if real and signed is not None and signed.folder is None:
            federation = replace(federation, agreements=AgreementLog(signed.registry, self.path / AGREEMENTS))
        if real and federation.ledger.path is None:
            federation.ledger.keep(self.path / LEDGER, begun=self.saved is not None)
        return federation

    def begin(self, history: History, *, plan: Plan | None, settings: Mapping[str, Any] | None) -> None:
        """Write what is known before the first round, or compare it with what is there.

        Args:
            history: Of the run; its rows are written from now on.
            plan: Of the first test.
            settings: Of a real run.

        Raises:
            SpecError: If the run that is there has other settings, or another plan.
        """
        self._history = history
        for name, text in (
            (PLAN, None if plan is None else plan_text(plan)),
            (SETTINGS, None if settings is None else tomli_w.dumps(settings)),
        ):
            if text is not None and self.saved is None:
                write_durably(self.path / name, text.encode())
        if self.result is not None:
            return
        self._progress = ProgressFile(self.path, history.heading)
        if history.rounds:
            self._progress.round(history.rounds[-1], finished=len(history.rounds), on_record=True)
        for test in history.tests:
            self._progress.tested(test, history.clients)

    def require_same(self, *, plan: Plan | None, settings: Mapping[str, Any]) -> None:
        """Only the very same run goes on.

        Raises:
            SpecError: Names what differs.
        """
        how = f"Go on with the settings in {self.path}, or take another folder"
        try:
            there = tomllib.loads(read_text(self.path / SETTINGS, "settings"))
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{self.path / SETTINGS}: not valid TOML: {error}") from error
        if there.get("fedgt") != __version__:
            raise SpecError(
                f"{self.path} was begun with fedgt {there.get('fedgt')}, this is {__version__}: go on with that version"
            )
        if told := differing(there, settings, without=HOW_IT_IS_DONE):
            raise SpecError(f"{self.path} holds another run: {told}. {how}")
        path = self.path / PLAN
        before = read_text(path, "plan") if path.exists() else None
        if before != (None if plan is None else plan_text(plan)):
            raise SpecError(f"{self.path} holds a run with another plan: {path} differs from the one given. {how}")

    def name(self) -> str | None:
        """The name of the run that it holds, which is part of every key."""
        if not (self.path / SETTINGS).exists():
            return None
        try:
            return str(tomllib.loads(read_text(self.path / SETTINGS, "settings"))["name"])
        except (ValueError, RecursionError, KeyError) as error:
            raise SpecError(f"{self.path / SETTINGS}: not the settings of a run ({error})") from error

    def asks(self, coming: Coming) -> None:
        """A round begins: it is on the disk before anybody is asked. From here on it is held or lost, never again."""
        if self._real:
            content = {"round": coming.round, "purpose": coming.purpose}
            write_durably(self.path / UNDER_WAY, json.dumps(content).encode())

    def under_way(self) -> tuple[int, str]:
        """The last round that was begun, and what it was for; 0 if none was."""
        if not (self.path / UNDER_WAY).exists():
            return 0, ""
        try:
            content = strict_json.parse(read_content(self.path / UNDER_WAY, "note of a round", largest=1000))
            return int(content["round"]), str(content["purpose"])
        except (ValueError, TypeError, LookupError) as error:
            raise SpecError(f"{self.path / UNDER_WAY} cannot be read ({error}): the folder was changed") from error

    def keep(self, step: Step, state: RunState) -> None:
        """Keep what a test compared."""
        keep_test(self.path, step, state)

    def save(self, run: SavedRun) -> None:
        """Keep the run after a round, and before the next one begins."""
        write_durably(self.path / STATE, run.to_bytes(), sync=self._real)

    def round(self, step: Step) -> None:
        """A round is over, and in the history."""
        if self._history is None or self._progress is None:
            return
        write_rounds(self._history.rounds, self.path)
        self._progress.round(self._history.rounds[-1], finished=len(self._history.rounds), on_record=False)
        if step.screening is not None:
            self._progress.tested(self._history.tests[-1], self._history.clients)

    def end(self, result: RunResult) -> None:
        """The run is over: the result is written, last and at once."""
        write_result(result, self.path)
        for name in (PROGRESS, UNDER_WAY) if self._real else (PROGRESS, STATE):
            (self.path / name).unlink(missing_ok=True)
        self._progress = None
        self.close()

    def close(self) -> None:
        """Let others work there; a run that has not ended is interrupted. May be called again."""
        if self._progress is not None:
            self._progress.interrupted()
            self._progress = None
        logger = logging.getLogger("fedgt")
        if self._handler in logger.handlers:
            logger.removeHandler(self._handler)
            logger.setLevel(self._level)
        self._handler.close()
        self._claim.release()

    def _sweep(self) -> None:
        """Remove the drafts of files that a killed process was writing."""
        for name in FILES:
            for draft in self.path.glob(f".{name}.*"):
                draft.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close it, and leave nothing of a run that never began."""
        if self._progress is None and self.saved is None:
            self.clear()
            (self.path / LOG).unlink(missing_ok=True)
        self.close()
