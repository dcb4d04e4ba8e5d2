"""No function, method or class of the source is there for the tests alone."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from call_graph import ROOT

SOURCE = ROOT / "src" / "fedgt"
USERS = ("benchmarks", "examples", "docs")
# Called by what they override: a command of typer, a log handler, a stream, Flower's Grid.
OVERRIDES = {"format_help", "parse_args", "invoke", "emit", "writable", "set_run", "create_message", "send_and_receive"}


def named(tree: ast.AST) -> Counter[str]:
    """How often each name is used in code: read, called, or written in a string (`getattr`, Jinja, `__all__`)."""
    texts: set[int] = set()  # docstrings use nothing; a statement comes before what is in it
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            texts.add(id(node.value))
        elif isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            found.update(re.findall(r"\w+", node.value))
    return found


def defined(tree: ast.AST) -> Iterator[tuple[str, Counter[str]]]:
    """Every definition that nobody calls by a decorator, with the names that it uses itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            called = any(
                re.search("validator|serializer|callback|overload", ast.unparse(one)) for one in node.decorator_list
            )
            if not called and not node.name.startswith("__"):
                yield node.name, named(node)


def unused(sources: dict[Path, ast.AST], elsewhere: Counter[str]) -> list[str]:
    """Definitions whose names occur nowhere but in themselves."""
    used = elsewhere.copy()
    for tree in sources.values():
        used.update(named(tree))
    return sorted(
        f"{path.stem}.{name}"
        for path, tree in sources.items()
        for name, own in defined(tree)
        if used[name] <= own[name] and name not in OVERRIDES
    )


def test_everything_is_used_by_the_product_a_benchmark_an_example_or_a_page() -> None:
    pages: Counter[str] = Counter()
    for folder in USERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix == ".py":
                pages += named(ast.parse(path.read_text(encoding="utf-8")))
            elif path.suffix in (".md", ".j2") and "reference" not in path.parts:
                pages.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    for path in SOURCE.rglob("*.j2"):
        pages.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    sources: dict[Path, ast.AST] = {one: ast.parse(one.read_text(encoding="utf-8")) for one in SOURCE.rglob("*.py")}
    assert unused(sources, pages) == []


def test_what_only_calls_itself_is_noticed_and_what_a_page_names_is_not() -> None:
    code = (
        'def f(n):\n    """See f."""\n    return f(n - 1)\n\n\ndef g():\n    return h()\n\n\ndef h():\n    return 1\n'
    )
    assert unused({Path("a.py"): ast.parse(code)}, Counter()) == ["a.f", "a.g"]
    assert unused({Path("a.py"): ast.parse(code)}, Counter({"g": 1})) == ["a.f"]
