"""`fedgt design --clients ...`: the Pareto set as a table or JSON, the recommended plan, and the picture."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedgt.text_file import write_text

if TYPE_CHECKING:
    from fedgt.deadline import Deadline
    from fedgt.decode import Strategy
    from fedgt.design import AnyDesign, Design
    from fedgt.planning import Communication, Demands, Evaluation, ExpectedErrors, SearchResult
    from fedgt.privacy import DisclosedShare

_COMPARED: "tuple[Strategy, ...]" = ("bayes", "count", "delta", "comp")
_STRATEGY_SHARE = 0.25  # of the seconds of a search, for the table beside it


def search_designs(
    demands: "Demands",
    *,
    seed: int,
    effort: float,
    seconds: float,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    write: Path | None,
) -> None:
    """Search, print, and write what was asked for.

    Raises:
        SpecError: If an option is wrong.
        DesignError: If nothing meets the demands.
    """
    from fedgt.deadline import Deadline
    from fedgt.planning import communication, draw_tradeoff, make_plan, search, write_plan
    from fedgt.planning.picture import check_picture

    if plot is not None:
        check_picture(plot)
    with _step_bar("searching") as progress:
        result = search(demands, seed=seed, effort=effort, progress=progress, deadline=Deadline(seconds))
    chosen = result.recommended
    cost = communication(chosen.design)
    errors = _strategies(result, Deadline(seconds).part(_STRATEGY_SHARE))
    if out is not None:
        write_plan(out, make_plan(chosen.figures, demands))
    if plot is not None:
        draw_tradeoff(plot, result)
    if write is not None:
        write_csv(write, chosen.design)
    if as_json:
        typer.echo(json.dumps(_as_json(result, cost, errors)))
        return
    _print(result, cost, errors)


def write_csv(path: Path, design: "AnyDesign") -> None:
    """One line of 0,1 per group, or of coefficients."""
    write_text(path, "".join(",".join(map(str, row)) + "\n" for row in design.matrix.tolist()))


def _strategies(result: "SearchResult", deadline: "Deadline") -> "tuple[ExpectedErrors, ...]":
    """Misdetections and false alarms of several strategies for the recommended design, under the demanded error rates.

    Those that the time allows.
    """
    import numpy as np

    from fedgt.errors import OutOfTimeError
    from fedgt.planning import expected

    demands = result.demands
    if demands.evidence == "graded":
        return ()
    found = []
    with suppress(OutOfTimeError):
        for strategy in _COMPARED:
            found.append(
                expected(
                    result.recommended.design,
                    demands.rates,
                    strategy=strategy,
                    malicious=range(demands.max_malicious + 1),
                    largest=demands.max_malicious,
                    rng=np.random.default_rng(result.seed),
                    samples=1000,
                    deadline=deadline,
                )
            )
    return tuple(found)


def _as_json(result: "SearchResult", cost: "Communication", errors: "tuple[ExpectedErrors, ...]") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "demands": asdict(result.demands),
        "seed": result.seed,
        "looked_at": result.looked_at,
        "planned": result.planned,
        "rule": result.rule,
        "recommended": result.recommended.design.name,
        "designs": [_row(one) for one in result.front],
        "communication": asdict(cost),
        "strategies": {
            one.strategy: {
                "missed": one.missed.tolist(),
                "accused": one.accused.tolist(),
                "standard_error": one.standard_error.tolist(),
                "exact": one.exact,
            }
            for one in errors
        },
    }


def _row(one: "Evaluation") -> dict[str, Any]:
    figures = one.figures
    share = _share(figures.design)
    return {
        "name": figures.design.name,
        "source": figures.design.source,
        "groups": figures.groups,
        "secure_sums": figures.groups,
        "privacy": figures.r,
        "privacy_exact": figures.r_exact,
        "share_mean": share.mean,
        "share_largest": share.largest,
        "privacy_after_dropouts": one.r_after,
        "keeps_promise_after_dropouts": one.keeps_promise,
        "max_malicious": figures.max_malicious,
        "margin": figures.margin,
        "expected_wrong": one.wrong.tolist(),
        "expected_wrong_mean": figures.expected_mean,
        "expected_wrong_standard_error": figures.standard_error,
        "group_sizes": figures.design.group_sizes.tolist(),
        "matrix": figures.design.matrix.tolist(),
    }


def _share(design: "Design") -> "DisclosedShare":
    from fedgt.errors import DesignError
    from fedgt.privacy import disclosed_share

    share = disclosed_share(design.matrix, weights=[1.0] * design.clients)
    if share is None:  # a design has no empty group
        raise DesignError(f"design {design.name!r} reveals nothing")
    return share


def _print(result: "SearchResult", cost: "Communication", errors: "tuple[ExpectedErrors, ...]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    demands, chosen = result.demands, result.recommended
    graded = demands.evidence == "graded"
    console = Console(highlight=False)
    if not console.is_terminal:  # a file or a pipe has no width: keep each design on one line
        console.width = 160
    table = Table(
        title=f"of {result.looked_at} designs nothing beats {len(result.front)} (* recommended)",
        title_justify="left",
    )
    for heading in (
        "",
        "groups",
        "clients mixed, r",
        "share disclosed",
        f"r with {demands.dropouts} missing",
        f"then still r = {demands.privacy}",
        "margin" if graded else "attackers at most",
        f"wrong with {demands.max_malicious} attacker{'' if demands.max_malicious == 1 else 's'}",
        "wrong on average",
    ):
        table.add_column(heading, justify="right", max_width=11)
    table.add_column("design", overflow="fold")
    for one in result.front:
        figures = one.figures
        error = f" +- {figures.standard_error:.3f}" if figures.standard_error else ""
        table.add_row(
            "*" if one is chosen else "",
            str(figures.groups),
            f"{figures.r}" if figures.r_exact else f">= {figures.r}",
            f"{_share(figures.design).mean:.2f}",
            str(one.r_after),
            f"{100 * one.keeps_promise:.0f} %",
            f"{figures.margin:.3f}" if figures.margin is not None else str(figures.max_malicious),
            f"{one.expected_most:.3f}",
            f"{figures.expected_mean:.3f}{error}",
            Text(figures.design.name),
            style="bold" if one is chosen else "",
        )
    console.print(table)
    if errors:
        console.print(_error_table(errors, demands.max_malicious))
    lines = [
        f"recommended: {chosen.design.name} ({chosen.design.source})",
        f"rule: {result.rule}",
        f"one test round: {cost.secure_sums} secure sums, {cost.messages} messages, {cost.bytes_up / 1e6:.2f} MB up and "
        f"{cost.bytes_down / 1e6:.2f} MB down for a model of 7,850 entries",
        f"that is {cost.ratio:.2f} x one secure sum of everybody; the paper counts {cost.paper_ratio:.2f} x",
    ]
    if result.far:
        lines.append(result.far)
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _error_table(errors: "tuple[ExpectedErrors, ...]", most: int) -> Any:
    from rich.table import Table

    table = Table(title="the recommended design: clients missed / falsely accused on average", title_justify="left")
    table.add_column("strategy")
    for attackers in range(most + 1):
        table.add_column(f"{attackers} attacker{'' if attackers == 1 else 's'}", justify="right")
    for one in errors:
        cells = [f"{m:.2f} / {a:.2f}" for m, a in zip(one.missed.tolist(), one.accused.tolist(), strict=True)]
        table.add_row(f"{one.strategy}{'' if one.exact else ' (sampled)'}", *cells)
    return table


@contextmanager
def _step_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar over the steps of a search, on stderr, silent where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
