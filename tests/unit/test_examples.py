"""Every public name has an example in its docstring, and the example prints what it says."""

import doctest
import importlib
import inspect
import runpy
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES: dict[str, str] = runpy.run_path(str(ROOT / "docs" / "reference_api.py"))["MODULES"]


def names(path: str) -> Iterator[str]:
    """The classes and functions that a module offers; constants and names of types explain themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # typer, which Flower imports, and newer click
        module = importlib.import_module(path)
        for name in getattr(module, "__all__", ()):
            getattr(module, name)
    offered = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == path and name[0] != "_"
    ]
    for name in offered:
        value = getattr(module, name)
        error = inspect.isclass(value) and issubclass(value, Exception)
        if (inspect.isclass(value) or inspect.isfunction(value)) and not error:
            yield name


LONG = {
    "fedgt.experiment": {"run", "run_into"},
    "fedgt.federation": {"screening_round"},
    "fedgt.planning": {"Evaluation", "Plan", "SearchResult", "draw_tradeoff", "write_plan"},
    "fedgt.record": {"RunProgress", "read_progress", "write_result"},
    "fedgt.report": {"RunRecord", "audit", "read_run", "render_html"},
    "fedgt.reproduction.sweep": {"row_of"},
}
"""Examples that hold a run or search for a design, besides one of each kind that is always tried."""


def public() -> list[tuple[str, str]]:
    return [(path, name) for path in MODULES for name in names(path)]


def examples(value: object, name: str) -> list[doctest.DocTest]:
    """With the names of the value's module at hand, as `pytest --doctest-modules` has them."""
    found = doctest.DocTestFinder(recurse=False).find(value, name, globs=dict(vars(inspect.getmodule(value))))
    return [one for one in found if one.examples]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, marks=[pytest.mark.slow] if name in LONG.get(path, ()) else [])
        for path, name in public()
    ],
)
def test_it_has_an_example_that_prints_what_it_says(path: str, name: str) -> None:
    value = getattr(importlib.import_module(path), name)
    if isinstance(value, types.ModuleType) or getattr(value, "_is_protocol", False):
        pytest.skip("a protocol is filled by others")
    found = examples(value, name)
    assert found, f"{path}.{name} has no example: show in a few lines what it is for"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for one in found:
        runner.run(one, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
    printed = [example for one in found for example in one.examples if example.want]
    assert printed or name.startswith("check"), f"the example of {path}.{name} shows nothing"


def test_an_example_that_prints_something_else_is_noticed() -> None:
    def wrong() -> None:
        """Nothing.

        Examples:
            >>> 1 + 1
            3
        """

    runner = doctest.DocTestRunner()
    (one,) = examples(wrong, "wrong")
    assert runner.run(one, out=lambda _: None).failed == 1


def test_the_names_that_are_looked_at_are_many() -> None:
    assert len(public()) > 250
