"""The folder of a simulated run: that of any run (`fedgt.federation.run_folder`), with its specification, `spec.toml`."""

import logging
from pathlib import Path

from pydantic import ValidationError

from fedgt.durable_file import write_durably
from fedgt.engine import OnStage
from fedgt.errors import FedGTError, SpecError
from fedgt.experiment.one_run import OnRound, OnTest, run
from fedgt.experiment.spec import ExperimentSpec, read_spec
from fedgt.federation.run_folder import STATE, RunFolder
from fedgt.options import differences
from fedgt.record.result import RunResult

_log = logging.getLogger(__name__)

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
        resume: Go on with the run that is there, after its last finished round; the result is that of a run that was never
            interrupted. Begins where nothing was begun, and gives the result that is there where there is one.

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
        ['evidence.npz', 'log', 'plan.json', 'result.json', 'rounds.csv', 'spec.toml']
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
    place = RunFolder(folder)
    try:
        if not going_on:
            place.clear()
            write_durably(folder / "spec.toml", spec.to_toml().encode())
        try:
            return run(
                spec,
                data_dir=data_dir,
                on_round=on_round,
                on_stage=on_stage,
                on_test=on_test,
                folder=place,
                resume=going_on,
            )
        except FedGTError:
            if place.saved is None and not (folder / STATE).exists():
                (folder / "spec.toml").unlink(missing_ok=True)  # it never began: nothing to go on with
                place.abandon()
            raise
    except OSError as error:
        raise SpecError(f"run folder {folder}: {error}") from error
    finally:
        place.close()


def _require_same(spec: ExperimentSpec, folder: Path) -> None:
    """Only the very same run goes on.

    Raises:
        SpecError: If the folder is another specification's.
    """
    there = read_spec(folder / "spec.toml")
    if there.digest != spec.digest:
        raise SpecError(
            f"{folder} holds another run: {differences(there, spec)}. Go on with {folder / 'spec.toml'}, or take another "
            "folder"
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
