"""Options of a run are defined once: no default of theirs stands twice, in the source or at the command line."""

import ast
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from call_graph import ROOT
from fedgt import defaults
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings, SumSettings

SOURCE = ROOT / "src" / "fedgt"
SETTINGS = (SumSettings, RfaSettings, ScreenSettings, DecodeSettings)
OPTIONS = {
    name: field.default
    for section in SETTINGS
    for name, field in section.model_fields.items()
    if field.default is not None
}
# Other names of the same: what one function takes for an option of a run.
OPTIONS |= {"timeout": OPTIONS["timeout_seconds"], "error_rate": OPTIONS["false_alarm"]}


def command_named(name: str) -> Any:
    """A command of `fedgt`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # typer's own, about click
        import typer.main

        import fedgt.cli

        root: Any = typer.main.get_command(fedgt.cli.app)
    return root.commands[name]


def written(tree: ast.AST) -> Iterator[tuple[str, str, object]]:
    """(where, name, literal) of every default of a parameter or of a field that is written out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            own = node.args
            named = [*own.posonlyargs, *own.args]
            given = [*zip(named[len(named) - len(own.defaults) :], own.defaults, strict=True)]
            given += [(one, value) for one, value in zip(own.kwonlyargs, own.kw_defaults, strict=True) if value]
            for one, value in given:
                if isinstance(value, ast.Constant):
                    yield node.name, one.arg, value.value
        elif isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
                    value = line.value
                    if isinstance(value, ast.Call) and ast.unparse(value.func) == "Field" and value.args:
                        value = value.args[0]
                    if isinstance(value, ast.Constant):
                        yield node.name, line.target.id, value.value


def test_no_default_of_an_option_is_written_outside_its_definition() -> None:
    """Equal by value: another default for something else of the same name is no second definition."""
    twice = [
        f"{path.relative_to(SOURCE)}: {where}({name}={value!r})"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "settings.py"
        for where, name, value in written(ast.parse(path.read_text(encoding="utf-8")))
        if name in OPTIONS and value == OPTIONS[name] and type(value) is type(OPTIONS[name])
    ]
    assert twice == []


def test_such_a_default_is_noticed() -> None:
    code = "def decode(*, kappa=0.2): ...\nclass Plan:\n    clip: float = Field(8.0, gt=0)\n    beta: float = 0.5\n"
    assert list(written(ast.parse(code))) == [("decode", "kappa", 0.2), ("Plan", "clip", 8.0), ("Plan", "beta", 0.5)]


def test_every_constant_is_the_default_of_an_option_and_stands_in_no_second_section() -> None:
    values = [value for name, value in vars(defaults).items() if name.isupper()]
    assert all(value in OPTIONS.values() for value in values)
    names = [name for section in SETTINGS for name in section.model_fields]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["decode", "design", "run", "reproduce", "demo"])
def test_a_command_takes_its_defaults_from_the_definition(name: str) -> None:
    """None is "as it is defined"; any other default is the same object."""
    for option in command_named(name).params:
        if option.name in OPTIONS and option.name != "method":  # the demo's and the run's own: which federation
            assert option.default is None or option.default is OPTIONS[option.name], option.name


def test_the_help_of_a_command_says_the_defaults_and_descriptions_of_the_definition() -> None:
    command = command_named("decode")
    from fedgt.cli.run_options import describe

    describe(command)
    described = {option.name: option for option in command.params if option.name in DecodeSettings.model_fields}
    assert {"false_alarm", "misdetection", "strategy", "beta", "kappa", "max_malicious", "estimator"} <= set(described)
    for name, option in described.items():
        field = DecodeSettings.model_fields[name]
        assert option.default == field.default
        assert option.help.startswith(field.description)
    assert "count, delta, bayes" in described["strategy"].help
