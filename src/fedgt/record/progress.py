"""How far a run is: a small file in its folder, replaced as the run goes on, and what `fedgt watch` makes of it."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedgt._version import __version__
from fedgt.durable_file import write_durably
from fedgt.errors import SpecError
from fedgt.record.claim import PROGRESS as FILE
from fedgt.record.claim import claimed
from fedgt.record.result import ClientRow, Heading, RoundRow, RunResult, TestRow

_LEAST_INTERVAL = 0.2
"""Seconds between two writings, so that short rounds are not slowed down."""

Condition = Literal["running", "interrupted", "finished", "stopped", "failed"]


class RunProgress(BaseModel):
    """A run at one moment. `truth` of the clients exists in simulations only, as in the result.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.record import read_progress
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     progress = read_progress(Path(folder))
        >>> progress.rounds, progress.method
        (1, 'fedgt')
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int = 1
    state: Condition = Field(description="`interrupted`: no process works on it, and it can be gone on with.")
    reason: str = Field("", description="Why the run ended early; empty otherwise.")
    version: str = Field(description="Of fedgt.")
    spec_hash: str
    method: str
    seed: int
    process: int | None = Field(None, description="The number of the process that works on it.")
    rounds: int = Field(description="How many are to be held.")
    finished: int = Field(description="Rounds that are over.")
    resumed: int = Field(0, description="Of these, rounds that this session found on record.")
    round: int | None = Field(None, description="The round in which the stage is; null between runs.")
    purpose: str = Field("", description="Of the sums that are taken: `training`, `test`, ...")
    stage: str = Field("", description="keys, shares, masked (the clients train here), agree, unmask, opened.")
    updated: float = Field(description="Seconds since 1970.")
    seconds_left: float | None = Field(None, description="Estimated from the rounds of this session; null if unknown.")
    last: RoundRow | None = Field(None, description="The last finished round.")
    clients: tuple[ClientRow, ...] = Field((), description="The verdicts; empty before the first test round.")
    tests: tuple[TestRow, ...] = Field((), description="The test rounds until now.")


@final
class ProgressFile:
    """Keeps the file of a run up to date.

    Args:
        folder: The run folder.
        heading: Which run it is.
        clock: Seconds since 1970.
    """

    def __init__(self, folder: Path, heading: Heading, *, clock: Callable[[], float] = time.time) -> None:
        """Write the first state."""
        self._path = folder / FILE
        self._clock = clock
        self._written = 0.0
        self._began = clock()
        self._content: dict[str, Any] = RunProgress(
            state="running",
            version=__version__,
            spec_hash=heading.spec_hash,
            method=heading.method,
            seed=heading.seed,
            process=os.getpid(),
            rounds=heading.rounds,
            finished=0,
            updated=clock(),
        ).model_dump(mode="json")
        self._write()

    def stage(self, round: int, purpose: str, stage: str) -> None:
        """A stage of the secure aggregation begins."""
        self._content |= {"round": round, "purpose": purpose, "stage": stage}
        self._perhaps()

    def round(self, row: RoundRow, *, finished: int, on_record: bool) -> None:
        """A round is over: the last of so many; `on_record` if this session found it there."""
        self._content |= {"finished": finished, "last": row.model_dump(mode="json"), "round": None, "stage": ""}
        if on_record:
            self._content["resumed"] = finished
            self._began = self._clock()
        else:
            each = (self._clock() - self._began) / max(finished - self._content["resumed"], 1)
            self._content["seconds_left"] = max(0.0, each * (self._content["rounds"] - finished))
        self._perhaps()

    def tested(self, test: TestRow, clients: tuple[ClientRow, ...]) -> None:
        """A test round is decided."""
        self._content["tests"] = [*self._content["tests"], test.model_dump(mode="json")]
        self._content["clients"] = [client.model_dump(mode="json") for client in clients]
        self._write()

    def interrupted(self) -> None:
        """The run ends before its time."""
        self._content |= {"state": "interrupted", "process": None, "seconds_left": None}
        self._write()

    def _perhaps(self) -> None:
        if self._clock() - self._written >= _LEAST_INTERVAL:
            self._write()

    def _write(self) -> None:
        self._written = self._content["updated"] = self._clock()
        write_durably(self._path, json.dumps(self._content, allow_nan=False).encode(), sync=False)


def read_progress(folder: Path) -> RunProgress:
    """How far the run of a folder is; of a run that has ended, how it ended.

    Args:
        folder: As `fedgt run --out` makes it, or `FederationRun(folder=...)`.

    Raises:
        SpecError: If the folder holds no run, or files that cannot be those of a run (the message names the key).

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.record import read_progress
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     progress = read_progress(Path(folder))
        >>> progress.state, progress.finished
        ('finished', 1)
    """
    # The result is looked for first and last: the run may end between two looks.
    for path in (folder / "result.json", folder / FILE, folder / "result.json"):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: {error}") from error
        try:
            if path.name == FILE:
                return _still_running(RunProgress.model_validate_json(text), folder)
            return _ended(json.loads(text), path)
        except (ValidationError, ValueError, RecursionError) as error:
            raise SpecError(f"{path}: not the file of a run: {_first(error)}") from error
    raise SpecError(
        f"{folder} holds neither a run that goes on nor a result; give a run folder, as `fedgt run SPEC --out DIR` or "
        "FederationRun(folder=DIR) makes it"
    )


def _still_running(progress: RunProgress, folder: Path) -> RunProgress:
    """What the file says, unless the process that wrote it is gone."""
    if progress.state == "running" and claimed(folder) is False:
        return progress.model_copy(update={"state": "interrupted", "process": None, "seconds_left": None})
    return progress


def _ended(content: Any, path: Path) -> RunProgress:
    result = RunResult.model_validate(content)
    return RunProgress(
        state=result.status,
        reason=result.reason,
        version=result.version,
        spec_hash=result.spec_hash,
        method=result.method,
        seed=result.seed,
        rounds=len(result.rounds) if result.rounds_planned is None else result.rounds_planned,
        finished=len(result.rounds),
        updated=path.stat().st_mtime,
        last=result.rounds[-1] if result.rounds else None,
        clients=result.clients if result.test is not None else (),
        tests=result.tests,
    )


def _first(error: Exception) -> str:
    """A validation error in one line: the first key and what is wrong with it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
