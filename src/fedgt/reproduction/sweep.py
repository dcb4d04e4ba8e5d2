"""Many specifications on all cores, one CSV row each; rows that are there already are not run again.

Files with the same columns add up: rows of another machine can be appended, a row is known by its specification's hash.
"""

import csv
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedgt.errors import SpecError
from fedgt.experiment.batch import run_batch, world_of
from fedgt.experiment.spec import ExperimentSpec
from fedgt.record.result import RunResult
from fedgt.text_file import writing
from fedgt.train import ImageData, load

COLUMNS = (
    "spec_hash",
    "version",
    "sums",
    "variant",
    "dataset",
    "rounds",
    "attack",
    "malicious_clients",
    "placement",
    "method",
    "screen",
    "strategy",
    "design",
    "conditioning",
    "after_test",
    "seed",
    "top1_accuracy_percent",
    "balanced_accuracy_percent",
    "attack_accuracy_percent",
    "missed_clients",
    "falsely_excluded_clients",
    "wrong_outcomes",
    "groups",
    "estimated_malicious",
    "decision",
    "privacy_strict",
    "status",
    "top1_accuracy_by_round_percent",
    "balanced_accuracy_by_round_percent",
    "attack_accuracy_by_round_percent",
    "cpu_seconds",
)
Row = dict[str, str]
OnProgress = Callable[[int, int], None]
"""Called with (finished rounds, rounds that had to be run), over all runs."""

_LARGEST_BLOCK = 80  # runs that train together: their models and sums are in memory at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run of an experiment.

    Attributes:
        spec: The run.
        variant: How the experiment calls the method; empty where nobody does.

    Examples:
        >>> from fedgt.experiment import make_spec
        >>> from fedgt.reproduction.sweep import Planned
        >>> Planned(spec=make_spec({"privacy": 4}), variant="graded").variant
        'graded'
    """

    spec: ExperimentSpec
    variant: str = ""


def sweep(
    planned: Iterable[Planned | ExperimentSpec],
    path: Path,
    *,
    workers: int | None = None,
    masks: bool = True,
    data_dir: Path | None = None,
    on_progress: OnProgress | None = None,
) -> list[Row]:
    """All rows of the runs, in their order; new ones are appended to the file as they are finished.

    Args:
        planned: What to run.
        path: The CSV file.
        workers: Processes; as many as cores if not given.
        masks: False takes sums without the protocol, see `fedgt.experiment.unmasked`; the row's `sums` says which.
        data_dir: Where data files are.
        on_progress: Told about finished rounds.

    Raises:
        SpecError: If the file holds other columns, or a specification cannot be run.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.reproduction.sweep import sweep
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sweep([], Path(folder) / "rows.csv")  # a row for each specification that is not there yet
        []
    """
    wanted = [one if isinstance(one, Planned) else Planned(spec=one) for one in planned]
    known = {row["spec_hash"]: row for row in read_rows(path)}
    missing = {one.spec.digest: one for one in wanted if one.spec.digest not in known}
    blocks = list(_blocks(missing.values()))
    if blocks:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or not path.stat().st_size
        with writing(path), path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if new:
                writer.writeheader()
                file.flush()
            for rows in _finished(blocks, workers or os.cpu_count() or 1, masks, data_dir, on_progress):
                writer.writerows(rows)
                file.flush()
                known |= {row["spec_hash"]: row for row in rows}
    return [known[one.spec.digest] for one in wanted]


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file; nothing if there is no such file.

    Raises:
        SpecError: If its columns are others.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.reproduction.sweep import read_rows
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     list(read_rows(Path(folder) / "rows.csv"))  # nothing was run yet
        []
    """
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is None:
            return
        if tuple(reader.fieldnames) != COLUMNS:
            raise SpecError(
                f"{path} has the columns {', '.join(reader.fieldnames)}; {', '.join(COLUMNS)} are needed: take "
                "another file"
            )
        yield from reader


def _blocks(missing: Iterable[Planned]) -> Iterator[list[Planned]]:
    """Runs that train together, in pieces of bounded size."""
    worlds: dict[str, list[Planned]] = {}
    for one in missing:
        worlds.setdefault(world_of(one.spec), []).append(one)
    for members in worlds.values():
        pieces = -(-len(members) // _LARGEST_BLOCK)
        size = -(-len(members) // pieces)
        for begin in range(0, len(members), size):
            yield members[begin : begin + size]


def _finished(
    blocks: Sequence[list[Planned]],
    workers: int,
    masks: bool,
    data_dir: Path | None,
    on_progress: OnProgress | None,
) -> Iterator[list[Row]]:
    rounds = sum(one.spec.federation.rounds for block in blocks for one in block)
    context = multiprocessing.get_context("spawn")
    done = context.Value("q", 0)
    pool = ProcessPoolExecutor(min(workers, len(blocks)), mp_context=context, initializer=_begin, initargs=(done,))
    try:
        waiting: set[Future[list[Row]]] = {pool.submit(_block, block, masks, data_dir) for block in blocks}
        while waiting:
            ended, waiting = wait(waiting, timeout=0.25, return_when=FIRST_COMPLETED)
            if on_progress is not None:
                on_progress(min(done.value, rounds), rounds)
            for one in ended:
                yield one.result()
    except BaseException:
        # Ctrl-C or a failed block: what runs is not waited for; rows that were written stay.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()
    if on_progress is not None:
        on_progress(rounds, rounds)


_done: Any = None
"""In a worker: the counter of finished rounds that all workers share."""


def _begin(done: Any) -> None:
    global _done  # noqa: PLW0603
    _done = done
    # What a run warns of is in its row or its own log; thousands of lines would hide the progress.
    logging.getLogger("fedgt").setLevel(logging.ERROR)


def _count(rounds: int) -> None:
    if _done is not None:
        with _done.get_lock():
            _done.value += rounds


@lru_cache(maxsize=1)
def _data(name: str, data_dir: Path | None) -> ImageData:
    return load(name, data_dir)


def _block(block: list[Planned], masks: bool, data_dir: Path | None) -> list[Row]:
    specs = [one.spec for one in block]
    results = run_batch(specs, data=_data(specs[0].data.name, data_dir), masks=masks, on_steps=_count)
    return [row_of(one, result, masks=masks) for one, result in zip(block, results, strict=True)]


def row_of(planned: Planned, result: RunResult, *, masks: bool) -> Row:
    """One run as a row of the file.

    Examples:
        >>> from fedgt.experiment import make_spec, run
        >>> from fedgt.reproduction.sweep import Planned, row_of
        >>> spec = make_spec({"privacy": 4, "federation": {"rounds": 1}})
        >>> row_of(Planned(spec=spec), run(spec), masks=True)["sums"]
        'secure'
    """
    spec, variant = planned.spec, planned.variant
    test = result.test
    # A run that failed in its first round has no accuracy.
    last = result.rounds[-1] if result.rounds else None
    fedgt = spec.method == "fedgt"
    values = (
        spec.digest,
        result.version,
        "secure" if masks else "unmasked",
        variant,
        spec.data.name,
        len(result.rounds),
        spec.attack.kind,
        spec.attack.malicious,
        spec.attack.placement,
        spec.method,
        spec.screen.kind if fedgt else "",
        (test.strategy if test is not None else spec.decode.strategy) if fedgt else "",
        "" if test is None else test.design,
        "some-group-clean" if spec.attack.require_clean_group else "all",
        spec.decode.after_test if fedgt else "",
        spec.seed,
        "" if last is None else _percent(last.top1_accuracy, 4),
        "" if last is None else _percent(last.balanced_accuracy, 4),
        "" if last is None else _percent(last.attack_accuracy, 4),
        result.missed if fedgt else "",
        result.falsely_excluded if fedgt else "",
        "" if test is None or not test.outcomes else str(_wrong(result)),
        "" if test is None else len(test.groups),
        "" if test is None else test.estimated_malicious,
        "" if test is None else test.status,
        result.privacy.strict,
        result.status,
        " ".join(_percent(one.top1_accuracy, 3) for one in result.rounds),
        " ".join(_percent(one.balanced_accuracy, 3) for one in result.rounds),
        " ".join(_percent(one.attack_accuracy, 3) for one in result.rounds if one.attack_accuracy is not None),
        f"{result.cpu_seconds:.3f}",
    )
    return {name: "" if value is None else str(value) for name, value in zip(COLUMNS, values, strict=True)}


def _percent(fraction: float | None, places: int) -> str:
    return "" if fraction is None else f"{100 * fraction:.{places}f}"


def _wrong(result: RunResult) -> int:
    test = result.test
    if test is None or test.truth is None:
        return 0
    return sum(1 for said, true in zip(test.outcomes, test.truth, strict=True) if said not in (true, "?"))
