"""`fedgt compare`: several defences on the same federations, one row a run, resumable."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedgt.cli.root import INTERRUPTED

if TYPE_CHECKING:
    from fedgt.reproduction.sweep import Planned, Row

_METHODS = "fedgt,paper,rfa,no-defence,oracle"
_SHOWN = (
    ("missed", "missed_clients"),
    ("honest excluded", "falsely_excluded_clients"),
    ("accuracy %", "top1_accuracy_percent"),
    ("attack success %", "attack_accuracy_percent"),
)
"""Heads of the table, and the columns that they are means of."""


def compare(
    spec: Annotated[Path, typer.Argument(help="TOML file; docs/specification.md lists every key.")],
    out: Annotated[Path, typer.Option(help="CSV file, one row a run; rows that are there are kept.")],
    methods: Annotated[
        str, typer.Option(help="Separated by commas; `paper` is fedgt with the paper's designs and clusters.")
    ] = _METHODS,
    attacks: Annotated[
        str | None, typer.Option(help="Values of `attack.kind`, separated by commas; the specification's if not given.")
    ] = None,
    malicious: Annotated[
        str | None,
        typer.Option(help="Values of `attack.malicious`, separated by commas; the specification's if not given."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every cell, all methods on the same ones.")] = 10,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any other key: --set data.partition=dirichlet (repeatable).")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data; else FEDGT_DATA.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core if not given.")] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Take every sum by the protocol; the same numbers, ten times slower.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: the rows.")] = False,
) -> None:
    """Run methods, attacks and numbers of attackers on the same seeds, and print the mean of every cell.

    The interval behind a mean is its 95 % confidence interval by Student's t over the seeds. A row holds the version and the
    hash of its resolved specification. Ctrl-C keeps the rows that are finished; the same command goes on.
    """
    from fedgt.cli.round_bar import round_bar
    from fedgt.reproduction.sweep import sweep

    runs = _planned(
        spec,
        methods=_words(methods, "--methods"),
        attacks=[None] if attacks is None else _words(attacks, "--attacks"),
        malicious=[None] if malicious is None else [_number(one) for one in _words(malicious, "--malicious")],
        seeds=range(first_seed, first_seed + seeds),
        change=change or [],
    )
    try:
        with round_bar(f"{len(runs)} runs") as told:
            rows = sweep(runs, out, workers=workers, masks=secure, data_dir=data_dir, on_progress=told)
    except KeyboardInterrupt:
        typer.echo(f"\nfedgt: interrupted; finished runs are in {out}. The same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps({"rows": rows}))
        return
    _print(rows, [one.variant for one in runs])
    typer.echo(f"{len(rows)} rows in {out}")


def _planned(
    path: Path,
    *,
    methods: Sequence[str],
    attacks: Sequence[str | None],
    malicious: Sequence[int | None],
    seeds: Sequence[int],
    change: Sequence[str],
) -> "list[Planned]":
    from fedgt.cli.run_command import assignment
    from fedgt.experiment import PAPER, read_spec
    from fedgt.reproduction.sweep import Planned

    runs = []
    for kind in attacks:
        for number in malicious:
            for method in methods:
                given: dict[str, Any] = {"method": method}
                if method == "paper":
                    given = {**PAPER, "method": "fedgt", "decode.strategy": "delta"}
                given |= {} if kind is None else {"attack.kind": kind}
                given |= {} if number is None else {"attack.malicious": number}
                given |= dict(assignment(text) for text in change)
                runs += [Planned(spec=read_spec(path, {**given, "seed": seed}), variant=method) for seed in seeds]
    return runs


def _words(text: str, option: str) -> list[str]:
    from fedgt.errors import SpecError

    words = [one.strip() for one in text.split(",")]
    if not all(words) or len(set(words)) < len(words):
        raise SpecError(f"{option} {text!r}: different values separated by commas are needed, such as {_METHODS}")
    return words


def _number(text: str) -> int:
    from fedgt.errors import SpecError

    try:
        return int(text)
    except ValueError as error:
        raise SpecError(f"--malicious {text!r}: numbers separated by commas are needed, such as 0,3,5") from error


def _print(rows: "Sequence[Row]", methods: Sequence[str]) -> None:
    """A table of means, a line for every attack, number of attackers and method."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row, method in zip(rows, methods, strict=True):
        cells.setdefault((row["attack"], row["malicious_clients"], method), []).append(row)
    lines = [("attack", "attackers", "method", "runs", *(head for head, _ in _SHOWN))]
    for (attack, malicious, method), members in cells.items():
        means = [_interval([float(row[column]) for row in members if row[column]]) for _, column in _SHOWN]
        lines.append((attack, malicious, method, str(len(members)), *means))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        typer.echo("  ".join(one.ljust(width) for one, width in zip(line, widths, strict=True)).rstrip())
    ended = sum(row["status"] != "finished" for row in rows)
    if ended:
        typer.echo(f"{ended} of {len(rows)} runs ended early; the column `status` says which")


def _interval(values: Sequence[float]) -> str:
    """The mean and half its 95 % confidence interval."""
    from statistics import fmean, stdev

    from scipy.special import stdtrit

    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):.2f} ± {half:.2f}"
