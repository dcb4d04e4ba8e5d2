"""Writes docs/dependencies.md, what an installation brings along and under which licences: `make reference`.

From the metadata of the packages that are installed here, in the versions of requirements; a test compares. Whoever
adds a dependency sees here what else comes with it.
"""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
EXTRAS = ("plots", "flower", "nvflare")
HEAD = """# What an installation brings along

The packages that come with fedgt, and those that its extras `plots`, `flower` and `nvflare` add.
They are in the versions that the files of `requirements` pin, with the licences that they state.
The extra `train` (torch and others) is not pinned. Written by `make reference`, for Linux on
Python 3.11.

| package | version | licence | needed by |
|---|---|---|---|"""

SIZES = """
## Size

The core takes 245 MB without bytecode; the aim is 250 MB. pip compiles all of it unless told
`--no-compile`, and bytecode adds 132 MB. This was measured with these versions on Linux x86-64.

| package | MB | what for |
|---|---|---|
| scipy | 114 | linear programs, sparse orderings, distributions; scikit-learn needs it as well |
| numpy | 57 | arrays |
| scikit-learn | 31 | k-means of the paper's screen, the digits |
| cryptography | 15 | keys, signatures, ciphers |
| all others | 21 | fedgt itself 1.1 |

numpy, scipy and scikit-learn are 202 MB. Much of it is their own tests, and a library for linear
algebra each.

## Hashes

`requirements` has a file for each set of packages. It pins each version and names the SHA-256 of
each of its files, so pip refuses a download that is anything else. `make` installs from these files
only ([decision 0035](decisions/0035-hashes.md)). The one exception is torch.
"""


def _needed(name: str, extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """What a package requires here, with these of its extras."""
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(requirement.marker.evaluate(one) for one in wanted):
            yield requirement


def _closure(extras: Iterable[str]) -> dict[str, set[str]]:
    """Package -> the packages that require it."""
    found: dict[str, set[str]] = {}
    waiting = [("fedgt", tuple(extras))]
    seen = set(waiting)
    while waiting:
        name, chosen = waiting.pop()
        for requirement in _needed(name, chosen):
            needed = canonicalize_name(requirement.name)
            found.setdefault(needed, set()).add(name)
            step = (needed, tuple(sorted(requirement.extras)))
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return found


def _licence(package: Distribution) -> str:
    """An SPDX expression where the package gives one, else what it says in a word or in its classifiers."""
    metadata = package.metadata
    stated = next((metadata[key] for key in ("License-Expression", "License") if key in metadata), "")
    if stated not in ("", "UNKNOWN") and "\n" not in stated and len(stated) < 60:
        return stated
    classified = [
        line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    return "; ".join(sorted(set(classified))) or "not stated"


def locked() -> dict[str, str]:
    """Package -> version that the files of requirements/ pin, which is one in all of them."""
    texts = [file.read_text(encoding="utf-8") for file in (HERE.parent / "requirements").glob("*.txt")]
    pairs = [pair for text in texts for pair in re.findall(r"^([\w.-]+)==([^\s;]+)", text, flags=re.MULTILINE)]
    return {canonicalize_name(name): version for name, version in pairs}


def table() -> str:
    """The content of docs/dependencies.md."""
    core = _closure(())
    rows = [_row(name, core[name]) for name in sorted(core)]
    for extra in EXTRAS:
        more = {name: by for name, by in _closure((extra,)).items() if name not in core}
        rows.append(f"| **extra `{extra}`** | | | |")
        rows += [_row(name, more[name]) for name in sorted(more)]
    return "\n".join([HEAD, *rows]) + "\n" + SIZES


def _row(name: str, by: set[str]) -> str:
    version = locked().get(name, "not locked")
    return f"| {name} | {version} | {_licence(distribution(name))} | {', '.join(sorted(by))} |"


if __name__ == "__main__":
    (HERE / "dependencies.md").write_text(table(), encoding="utf-8")
