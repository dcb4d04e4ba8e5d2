"""A run folder: `spec.toml` (resolved), `result.json`, `rounds.csv` and `log`.

Until the result is there it also holds what a resumed run needs (`sums`, see `recorded_sums`) and how far the run is
(`progress.json`, see `progress`), so that an interrupted or killed run can go on. Both are removed when the result is there.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from fedgt._version import __version__
from fedgt.engine import TakesSums
from fedgt.errors import FedGTError, SpecError
from fedgt.experiment import progress, recorded_sums
from fedgt.experiment.claim import claim
from fedgt.experiment.one_run import OnRound, OnTest, run
from fedgt.experiment.progress import ProgressFile
from fedgt.experiment.recorded_sums import OnStage, RecordedSums
from fedgt.experiment.result import ClientRow, RoundRow, RunResult, TestRow, write_result
from fedgt.experiment.spec import ExperimentSpec, read_spec
from fedgt.options import differences
from fedgt.text_file import write_text

_log = logging.getLogger(__name__)

_RESULTS = ("result.json", "rounds.csv", "report.html", "report.json")
_FILES = ("spec.toml", "result.json", "rounds.csv", "log")


def run_into(
    spec: ExperimentSpec,
    folder: Path,
    *,
    data_dir: Path | None = None,
    on_round: OnRound | None = None,
    on_stage: OnStage | None = None,
    on_test: OnTest | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> RunResult:
    """Run a specification and keep everything about it in a folder.

    Args:
        spec: The run.
        folder: Made if needed. A folder that already holds a run is refused unless `overwrite` or `resume`.
        data_dir: Where idx files are.
        on_round: Called with (finished rounds, all rounds, the row of the round).
        on_stage: Called with (round, purpose, stage) when a stage of the secure aggregation begins.
        on_test: Called with (the test round, all clients as they are judged now).
        overwrite: Replace the run that is there.
        resume: Go on with the run that is there, from the first sum that is not on record; the result is that of a run that
            was never interrupted. Begins where nothing was begun, and gives the result that is there where there is one.

    Raises:
        SpecError: If the folder holds a run or a specification, or cannot be written; with `resume` if the run that it
            holds is another one, or of another version; if another process is at work there.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['log', 'result.json', 'rounds.csv', 'spec.toml']
    """
    if overwrite and resume:
        raise SpecError("overwrite begins anew, resume goes on: take one of them")
    there = [name for name in _FILES if (folder / name).exists()]
    going_on = resume and {"spec.toml", "log"} <= set(there)
    if going_on:
        _require_same(spec, folder)
        if "result.json" in there:
            return _finished(folder)
    elif there and not overwrite:
        raise SpecError(f"{folder} already holds {', '.join(there)}; take another folder, or {_way_out(there)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with claim(folder):
            if not going_on:
                _clear(folder)
                write_text(folder / "spec.toml", spec.to_toml())
            try:
                with _logging_to(folder / "log"):
                    result = _recorded(spec, folder, data_dir, on_round=on_round, on_stage=on_stage, on_test=on_test)
            except FedGTError:
                if recorded_sums.recorded_version(folder) is None:
                    _clear(folder, also=("spec.toml", "log"))  # it never began: nothing to go on with
                raise
            write_result(result, folder)
            recorded_sums.forget(folder)
            (folder / progress.FILE).unlink(missing_ok=True)
    except OSError as error:
        raise SpecError(f"run folder {folder}: {error}") from error
    return result


def _recorded(
    spec: ExperimentSpec,
    folder: Path,
    data_dir: Path | None,
    *,
    on_round: OnRound | None,
    on_stage: OnStage | None,
    on_test: OnTest | None,
) -> RunResult:
    """The run, with its sums and its progress on the disk."""
    note = ProgressFile(folder, spec)
    record: list[RecordedSums] = []

    def staged(number: int, purpose: str, stage: str) -> None:
        note.stage(number, purpose, stage)
        if on_stage is not None:
            on_stage(number, purpose, stage)

    def recording(take: TakesSums) -> TakesSums:
        record.append(RecordedSums(take, folder, spec_hash=spec.digest, on_stage=staged))
        return record[0]

    def finished(number: int, rounds: int, row: RoundRow) -> None:
        note.round(row, on_record=record[0].taken == 0)
        if on_round is not None:
            on_round(number, rounds, row)

    def tested(test: TestRow, clients: tuple[ClientRow, ...]) -> None:
        note.tested(test, clients)
        if on_test is not None:
            on_test(test, clients)

    try:
        result = run(spec, data_dir=data_dir, on_round=finished, on_test=tested, wrap_sums=recording)
    except BaseException:
        note.interrupted()
        raise
    # What earlier sessions spent belongs to the run.
    return result.model_copy(update={"cpu_seconds": result.cpu_seconds + record[0].cpu_seconds})


def _require_same(spec: ExperimentSpec, folder: Path) -> None:
    """Only the very same run goes on.

    Raises:
        SpecError: If the folder is another specification's, or another version's.
    """
    there = read_spec(folder / "spec.toml")
    if there.digest != spec.digest:
        raise SpecError(
            f"{folder} holds another run: {differences(there, spec)}. Go on with {folder / 'spec.toml'}, or take another "
            "folder"
        )
    version = recorded_sums.recorded_version(folder)
    if version is not None and version != __version__:
        raise SpecError(
            f"{folder} was begun with fedgt {version}, this is {__version__}: go on with that version, or begin anew with "
            "--overwrite"
        )


def _finished(folder: Path) -> RunResult:
    path = folder / "result.json"
    try:
        result = RunResult.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise SpecError(f"{path} is no readable result ({error}); begin anew with --overwrite") from error
    _log.info("%s is finished already; nothing is run again", folder)
    return result


def _way_out(there: list[str]) -> str:
    if "spec.toml" in there and "result.json" not in there:
        return "go on with the run that was begun there (--resume), or begin anew (--overwrite)"
    return "allow overwriting (--overwrite)"


def _clear(folder: Path, also: tuple[str, ...] = ()) -> None:
    """Never a new specification beside an old result, nor an old report beside a new result."""
    (folder / "log").write_bytes(b"")  # it stays: it is locked
    for name in (*_RESULTS, progress.FILE, *also):
        (folder / name).unlink(missing_ok=True)
    recorded_sums.forget(folder)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Everything that fedgt logs while the run lasts; what earlier sessions of the run logged stays."""
    logger = logging.getLogger("fedgt")
    handler = logging.FileHandler(path, mode="a", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(before or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        handler.close()
