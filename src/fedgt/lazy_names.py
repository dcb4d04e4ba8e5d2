"""Names of a package that are imported when they are first used, so that the package itself loads at once."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        homes: Module of the package, or `fedgt.` and a module of another one -> the names that it has.
    """
    home_of = {
        name: module if module.startswith("fedgt.") else f"{package}.{module}"
        for module, names in homes.items()
        for name in names
    }

    def load(name: str) -> Any:
        if name in home_of:
            return getattr(import_module(home_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted(home_of)
