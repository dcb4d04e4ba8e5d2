"""The folder of a Flower app: files from templates, and a plan for these sites."""

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedgt.design import Design
from fedgt.errors import SpecError
from fedgt.planning import design_for_absences, write_plan
from fedgt.planning.plan_file import plan_of
from fedgt.scaffold.answers import Answers

_TEMPLATES = files("fedgt.scaffold") / "templates"

_FILES = (
    "README.md",
    "env.sh",
    "federation.toml",
    "policy.toml",
    "certificates.sh",
    "superlink.sh",
    "supernode.sh",
    "make_terms.py",
    "share.py",
    "rehearse.sh",
)
_APP = ("client_app.py", "server_app.py")


def write_flower_app(folder: Path, answers: Answers) -> Design:
    """Write an app that runs as it is on loopback, with its plan, policy, terms and scripts; no key is made.

    Args:
        folder: New, or empty.
        answers: Who takes part, and what is promised.

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
        "sites": answers.sites,
        "privacy": answers.privacy,
        "rounds": answers.rounds,
        "run": answers.run,
        "framework": answers.framework,
        "absences": absences,
        "broken": answers.sites[len(answers.sites) // 2],
    }
    package = Path("app") / "consortium"
    contents = {Path(name): _filled(name, told) for name in _FILES}
    contents[Path("app") / "pyproject.toml"] = _filled("app/pyproject.toml", told)
    contents[Path("app") / "LICENSE"] = "Apache-2.0\n"
    contents |= {package / name: _filled(f"app/{name}", told) for name in _APP}
    contents[package / "model.py"] = _filled(f"app/model_{answers.framework}.py", told)
    contents[package / "__init__.py"] = (
        '"""The federation\'s app: its model, a site\'s half and the server\'s half."""\n'
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SpecError(f"{folder} holds something already: a new or an empty folder is needed")
        for path, content in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content, encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{folder} cannot be written ({error.strerror}): give a folder of yours") from error
    write_plan(folder / "plan.json", plan)
    return design


def _filled(name: str, told: dict[str, object]) -> str:
    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - these are programs and prose, no HTML
    )
    return environment.from_string((_TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")).render(told)
