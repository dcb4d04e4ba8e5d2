"""The folder of an app: files from templates, and a plan for these sites.

What an engine needs lies in its folder of templates, and what all need in `shared`. A file of an engine goes before the
shared one of its name, which it extends.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.planning import design_for_absences, write_plan
from fedgt.planning.plan_file import plan_of
from fedgt.scaffold.answers import Answers

Engine = Literal["flower", "nvflare"]

_MODEL = "model_"
_ENDING = ".jinja"


def write_app(folder: Path, answers: Answers, engine: Engine) -> Design:
    """Write an app that runs as it is on loopback, with its plan, policy, terms and scripts; no key is made.

    Args:
        folder: New, or empty.
        answers: Who takes part, and what is promised.
        engine: What carries the messages.

    Returns:
        The design of the plan, which has room for one absence where so many sites allow it.

    Raises:
        SpecError: If the folder holds something, or cannot be written.
        DesignError: If so few sites cannot be tested at this promise; the message says what is possible.
    """
    design, absences = design_for_absences(len(answers.sites), privacy=answers.privacy)
    plan = plan_of(
        design,
        privacy=answers.privacy,
        evidence="graded",
        largest=max(1, (len(answers.sites) - 1) // 2),
        members=answers.sites,
    )
    told = {
        "engine": engine,
        "sites": answers.sites,
        "privacy": answers.privacy,
        "rounds": answers.rounds,
        "run": answers.run,
        "framework": answers.framework,
        "absences": absences,
        "broken": answers.sites[len(answers.sites) // 2],
    }
    contents = _filled(engine, told)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SpecError(f"{folder} holds something already: a new or an empty folder is needed")
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{folder} cannot be written ({error.strerror}): give a folder of yours") from error
    write_plan(folder / "plan.json", plan)
    return design


def _filled(engine: Engine, told: Mapping[str, object]) -> dict[str, str]:
    """Path in the folder -> what stands there."""
    environment = Environment(
        loader=PackageLoader("fedgt.scaffold"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - these are programs and prose, no HTML
    )
    chosen = {}
    for place in ("shared", engine):
        for name in environment.list_templates():
            folder, _, path = name.removesuffix(_ENDING).partition("/")
            before, found, framework = path.partition(_MODEL)
            if folder == place and (not found or framework == f"{told['framework']}.py"):
                chosen[f"{before}model.py" if found else path] = name
    # `step` numbers what a README lists.
    return {path: environment.get_template(name).render(told, step=count(1).__next__) for path, name in chosen.items()}
