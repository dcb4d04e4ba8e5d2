"""`fedgt reproduce`: the paper's tables and curves, row by row, resumable."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedgt.extras import how_to_install
from fedgt.text_file import writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedgt.reproduction.paper import Dataset
    from fedgt.reproduction.sweep import Planned


_AT_PAPER_SCALE: "Mapping[str, Dataset]" = {
    "cifar10": "cifar10-paper",
    "isic2019": "isic2019-paper",
    "isic2019-flamby": "isic2019-flamby-paper",
}


What = Literal["targeted", "untargeted", "robustness", "thirty-clients", "rounds"]
Images = Literal["mnist", "cifar10", "isic2019", "isic2019-flamby"]


def reproduce(
    what: Annotated[What, typer.Argument(help="Which table or figure; `rounds` is both attacks, for the curves.")],
    dataset: Annotated[
        Images,
        typer.Option(help="The images; isic2019 with the paper's random test set, or FLamby's fold."),
    ] = "mnist",
    scale: Annotated[
        Literal["cpu", "paper"],
        typer.Option(
            help="cpu: cifar10 and isic2019 as linear heads on frozen features; paper: its networks, for a GPU."
        ),
    ] = "cpu",
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs a cell; as many as the paper's if not given.")] = None,
    methods: Annotated[str | None, typer.Option(help="Some of the methods, separated by commas.")] = None,
    malicious: Annotated[str | None, typer.Option(help="Some values of n_m, separated by commas.")] = None,
    conditioning: Annotated[
        Literal["all", "some-group-clean"],
        typer.Option(help="All attacker sets, or those that leave some group clean."),
    ] = "all",
    after_test: Annotated[
        Literal["next-round", "same-round"] | None,
        typer.Option(help="Overrides each method's own; same-round breaks the promised r."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the rows (CSV) and pictures (SVG).")] = Path("reproduction"),
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data; else FEDGT_DATA.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core if not given.")] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Take every sum by the protocol; the same numbers, ten times slower.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: the rows.")] = False,
) -> None:
    """Run the paper's experiments (rows that are there are kept); `fedgt report tables` compares them with the paper."""
    from fedgt.cli.round_bar import round_bar
    from fedgt.errors import SpecError
    from fedgt.reproduction.paper import cells, default_seeds, planned
    from fedgt.reproduction.sweep import sweep

    if what == "robustness":
        _robustness(out, as_json)
        return
    named: Dataset = dataset if scale == "cpu" or dataset == "mnist" else _AT_PAPER_SCALE[dataset]
    if dataset != "mnist" and scale == "cpu":
        from fedgt.cli.features_command import ensure_features

        ensure_features(dataset.removesuffix("-flamby"), data_dir)
    experiments = ("targeted", "untargeted") if what == "rounds" else (what,)
    runs: list[Planned] = [
        run
        for experiment in experiments
        for cell in cells(
            experiment,  # type: ignore[arg-type]
            named,
            malicious=_numbers(malicious),
            variants=None if methods is None else [one.strip() for one in methods.split(",")],
        )
        for run in planned(
            cell,
            named,
            experiment=experiment,  # type: ignore[arg-type]
            seeds=seeds or default_seeds(named),
            conditioning=conditioning,
            after_test=after_test,
        )
    ]
    if not runs:
        raise SpecError("no run is left: change --methods or --malicious")
    with round_bar(f"{what}, {named}, {len(runs)} runs") as told:
        rows = sweep(runs, out / f"{named}.csv", workers=workers, masks=secure, data_dir=data_dir, on_progress=told)
    if as_json:
        typer.echo(json.dumps({"rows": rows}))
        return
    typer.echo(f"{len(rows)} rows in {out / f'{named}.csv'}")
    typer.echo(f"mean CPU time a run: {sum(float(row['cpu_seconds']) for row in rows) / len(rows):.2f} s")
    _draw(out, named, experiments)
    typer.echo(f"compare with the paper: fedgt report tables --results {out}")


def _numbers(text: str | None) -> list[int] | None:
    from fedgt.errors import SpecError

    if text is None:
        return None
    try:
        return [int(one) for one in text.split(",")]
    except ValueError as error:
        raise SpecError(f"--malicious {text!r}: numbers separated by commas are needed, such as 0,3,5") from error


def _draw(out: Path, dataset: "Dataset", experiments: tuple[str, ...]) -> None:
    from importlib.util import find_spec

    from fedgt.reproduction.curves import draw

    if find_spec("matplotlib") is None:
        typer.echo(f"no pictures: they need matplotlib ({how_to_install('plots')})")
        return
    for experiment in experiments:
        for path in draw(out, dataset, experiment):  # type: ignore[arg-type]
            typer.echo(f"drawn: {path}")


def _robustness(out: Path, as_json: bool) -> None:
    from fedgt.reproduction.robustness import robustness_table

    rows = [asdict(one) for one in robustness_table()]
    if as_json:
        typer.echo(json.dumps({"rows": rows}))
        return
    out.mkdir(parents=True, exist_ok=True)
    path = out / "robustness.csv"
    with writing(path), path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in rows)
    equal = sum(round(row["published"], 2) == row["paper"] for row in rows)
    typer.echo(f"{equal} of {len(rows)} cells equal the paper's to two digits (published thresholds); rows in {path}")
