"""A run folder: `spec.toml` (resolved), `result.json`, `rounds.csv` and `log`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedgt.errors import SpecError
from fedgt.experiment.one_run import OnRound, run
from fedgt.experiment.result import RunResult, write_result
from fedgt.experiment.spec import ExperimentSpec

_FILES = ("spec.toml", "result.json", "rounds.csv", "log")


def run_into(
    spec: ExperimentSpec,
    folder: Path,
    *,
    data_dir: Path | None = None,
    on_round: OnRound | None = None,
    overwrite: bool = False,
) -> RunResult:
    """Run a specification and keep everything about it in a folder.

    Args:
        spec: The run.
        folder: Made if needed. A folder that already holds a result is refused unless `overwrite`.
        data_dir: Where idx files are.
        on_round: Called with (finished rounds, all rounds, the row of the round).
        overwrite: Replace the result that is there.

    Raises:
        SpecError: If the folder holds a run or a specification, or cannot be written.
    """
    there = [name for name in _FILES if (folder / name).exists()]
    if there and not overwrite:
        raise SpecError(f"{folder} already holds {', '.join(there)}; take another folder, or allow overwriting")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Never a new specification beside an old result, nor an old report beside a new result.
        for name in (*_FILES, "report.html", "report.json"):
            (folder / name).unlink(missing_ok=True)
        (folder / "spec.toml").write_text(spec.to_toml(), encoding="utf-8")
        with _logging_to(folder / "log"):
            result = run(spec, data_dir=data_dir, on_round=on_round)
        write_result(result, folder)
    except OSError as error:
        raise SpecError(f"run folder {folder}: {error}") from error
    return result


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Everything that fedgt logs while the run lasts."""
    logger = logging.getLogger("fedgt")
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
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
