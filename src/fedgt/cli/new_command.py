"""`fedgt new`: an app for a consortium, ready to be rehearsed."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedgt.scaffold import Engine

_KINDS: "dict[str, Engine]" = {"flower-app": "flower", "nvflare-app": "nvflare"}


def new(
    kind: Annotated[
        str,
        typer.Argument(
            help=f"What to write: {' or '.join(_KINDS)}.",
            autocompletion=lambda: list(_KINDS),
            metavar=f"[{'|'.join(_KINDS)}]",
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Where; a new or an empty folder.")],
    sites: Annotated[
        str | None, typer.Option(help="Their names, separated by commas, or how many. Asked for on a terminal.")
    ] = None,
    privacy: Annotated[
        int | None, typer.Option(help="No combination of sums may mix fewer sites. Asked for on a terminal.")
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            help="What the model is written with: scikit-learn (default) or torch.",
            autocompletion=lambda: ["scikit-learn", "torch"],
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Of the run.")] = 2,
    run: Annotated[str, typer.Option(help="The name of the run.")] = "first",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write an app that runs as it is on this machine, with plan, policy and terms; its README deploys it step by step."""
    from fedgt.errors import SpecError
    from fedgt.scaffold import FRAMEWORKS, Answers, write_app

    if kind not in _KINDS:
        raise SpecError(f"{kind!r:.60} cannot be written; known are {', '.join(_KINDS)}")
    asking = sys.stdin.isatty() and not as_json
    if sites is None:
        sites = _answer("Names of the sites, separated by commas (or how many)", None, "--sites", asking=asking)
    if privacy is None:
        privacy = int(
            _answer("No combination of sums may mix fewer sites than", 3, "--privacy", asking=asking, type=int)
        )
    if framework is None:
        framework = _answer("Framework (scikit-learn or torch)", FRAMEWORKS[0], "", asking=asking)
    if framework not in FRAMEWORKS:
        raise SpecError(f"--framework {framework!r:.60}; known are {', '.join(FRAMEWORKS)}")
    answers = Answers(sites=_names(sites), privacy=privacy, framework=framework, rounds=rounds, run=run)
    design = write_app(folder, answers, _KINDS[kind])
    if as_json:
        told = {"kind": kind, "folder": str(folder), "sites": answers.sites, "privacy": privacy, "design": design.name}
        typer.echo(json.dumps(told | {"framework": framework, "rounds": rounds, "run": run, "groups": design.groups}))
        return
    typer.echo(f"{folder}: an app for {len(answers.sites)} sites, {design.groups} groups, promise {privacy}")
    typer.echo(f"rehearse it here:  cd {folder} && sh rehearse.sh")
    typer.echo("then read README.md, which deploys it in order")


def _answer(question: str, default: Any, option: str, *, asking: bool, **how: Any) -> Any:
    """What a terminal says; without one the default, where there is one."""
    from fedgt.errors import SpecError

    if asking:
        return typer.prompt(question, default=default, err=True, **how)
    if default is None:
        raise SpecError(f"{option} is needed where nobody can be asked: {option} aarhus,bergen,cadiz or {option} 8")
    return default


def _names(sites: str) -> tuple[str, ...]:
    """Names, or so many of them."""
    from fedgt.errors import SpecError

    if sites.strip().isdecimal():
        count = int(sites)
        if not 2 <= count <= 999:
            raise SpecError(f"--sites {count}: from 2 to 999 sites are needed")
        return tuple(f"site-{number:0{len(str(count))}d}" for number in range(1, count + 1))
    return tuple(name.strip() for name in sites.split(",") if name.strip())
