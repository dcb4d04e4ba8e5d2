"""`fedgt features`: image features of a frozen network, computed once, for experiments on a CPU."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def features(
    source: Annotated[Literal["cifar10", "isic2019"], typer.Argument(help="The images.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with cifar-10-batches-bin/ or fed_isic2019/; else FEDGT_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: the file.")] = False,
) -> None:
    """Compute the features of EfficientNet-Lite0 (needs the extra `train`); a file that is there is kept."""
    path = ensure_features(source, data_dir)
    typer.echo(json.dumps({"path": str(path)}) if as_json else str(path))


def ensure_features(source: str, data_dir: Path | None) -> Path:
    """The file of features, made if it is not there.

    Raises:
        SpecError: If no folder is given, or data or packages are missing.
    """
    from fedgt.cli.round_bar import round_bar
    from fedgt.errors import SpecError
    from fedgt.train.data import directory_of
    from fedgt.train.features import make_features

    folder = directory_of(data_dir)
    if folder is None:
        raise SpecError(f"the images of {source} are in a folder, and none was given: set FEDGT_DATA or --data-dir")
    with round_bar(f"features of {source}", "images") as told:
        return make_features(source, folder, on_images=told)
