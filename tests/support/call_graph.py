"""Who calls whom in src/fedgt, read from the source: enough to follow a story from file to file.

A call by name is followed through imports, also through the lists of a package's `__init__`. A call of a method is followed
to every method of that name in a class that the calling module imports, or in its own. What is injected (a client's
`train`, a transport, a callback) is not followed: there the story ends, and another begins.
"""

import ast
import tomllib
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"


@cache
def _tree(module: str) -> ast.Module | None:
    base = SOURCE / module.replace(".", "/")
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8"))
    return None


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """Functions, classes, and methods as Class.method."""
    found: dict[str, ast.FunctionDef | ast.ClassDef] = {}
    tree = _tree(module)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}": one for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Name -> (module, name) of what a module imports from fedgt, at the top or inside functions."""
    found: dict[str, tuple[str, str]] = {}
    tree = _tree(module)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedgt"):
            found |= {one.asname or one.name: (str(node.module), one.name) for one in node.names}
    return found


@cache
def home(module: str, name: str) -> tuple[str, str] | None:
    """Where a name is defined, through the packages that pass it on."""
    if name in _definitions(module):
        return module, name
    if name in _imports(module):
        there, original = _imports(module)[name]
        return None if (there, original) == (module, name) else home(there, original)
    return None


@cache
def calls(function: str) -> frozenset[str]:
    """What `module:name` or `module:Class.method` calls, in the same form."""
    module, name = function.split(":")
    node = _definitions(module).get(name)
    if node is None:
        raise LookupError(f"there is no {function}")
    classes = {home(module, one) for one in (*_imports(module), *_definitions(module))} - {None}
    found: set[str] = set()
    for call in ast.walk(node):
        # A function that is handed over is called by whoever gets it: the story goes through it as well.
        if isinstance(call, ast.Name):
            there = home(module, call.id)
            if there is not None:
                found.add(":".join(there))
                found.add(f"{there[0]}:{there[1]}.__init__")
        elif isinstance(call, ast.Attribute):
            for there in classes:
                if there is not None and f"{there[1]}.{call.attr}" in _definitions(there[0]):
                    found.add(f"{there[0]}:{there[1]}.{call.attr}")
    return frozenset(one for one in found if one.split(":")[1] in _definitions(one.split(":")[0]) and one != function)


def path(start: str, end: str) -> list[str] | None:
    """The shortest way by calls; None where there is none."""
    before: dict[str, str | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == end:
            return list(_back(before, end))[::-1]
        for there in sorted(calls(here)):
            if there not in before:
                before[there] = here
                waiting.append(there)
    return None


def _back(before: dict[str, str | None], end: str) -> Iterator[str]:
    here: str | None = end
    while here is not None:
        yield here
        here = before[here]


@cache
def layers() -> tuple[dict[str, int], ...]:
    """Module prefix -> number of its layer, the lowest 0, for each contract of import-linter in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return tuple(
        {
            module.strip(): number
            for number, line in enumerate(reversed(contract["layers"]))
            for module in line.split("|")
        }
        for contract in contracts
        if contract["type"] == "layers"
    )


def goes_up(caller: str, callee: str) -> bool:
    """Whether a call leads to a higher layer of a contract."""
    for contract in layers():
        low, high = (_layer(contract, one.split(":")[0]) for one in (caller, callee))
        if low is not None and high is not None and high > low:
            return True
    return False


def _layer(contract: dict[str, int], module: str) -> int | None:
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((contract[name] for name in names if name in contract), None)
