"""Runs the fenced blocks of a documentation page, in order, in one folder.

- ```` ```sh ````: its lines are run one after the other and must end with exit code 0 (or N, with `exit=N` behind `sh`).
- ```` ```text ```` after it: each line must appear in what the commands printed, whatever the spacing; `...` matches
  anything inside a line.
- ```` ```LANGUAGE title="NAME" ````: is written to the file NAME.
- ```` ```python ```` without a title: is run as a program of its own together with the untitled ones before it on the page.

Anything else (`console`, `toml` without a title, ...) is only read. Nothing may be needed from a network.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what stands behind it, its text and the line of the page it begins at."""

    language: str
    options: str
    text: str
    line: int

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.options)
        return found.group(1) if found else None

    @property
    def code(self) -> int:
        found = re.search(r"exit=(\d+)", self.options)
        return int(found.group(1)) if found else 0


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for found in _FENCE.finditer(text):
        yield Block(found[1], found[2], found[3], text[: found.start()].count("\n") + 1)


def run_page(page: Path, folder: Path, *, seconds: float = 180) -> int:
    """Run a page, each block in so many seconds at most; an AssertionError names the line of the page.

    Returns how many blocks were run.
    """
    printed, ran, programs = "", 0, ""
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name} line {block.line}"
        if block.title is not None:
            target = folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = _run(["bash", "-euo", "pipefail", "-c", block.text], folder, block.code, where, seconds)
            ran += 1
        elif block.language == "python":
            programs += block.text
            printed = _run([sys.executable, "-W", "error", "-c", programs], folder, 0, where, seconds)
            ran += 1
        elif block.language == "text" and printed:
            for line in block.text.splitlines():
                assert promised(line, printed), f"{where}: {line!r} is promised, printed was\n{printed}"
            printed = ""
    return ran


def promised(line: str, printed: str) -> bool:
    """Whether a line of the page appears in what was printed, on one line of it."""
    parts = [re.escape(" ".join(part.split())) for part in line.split("...")]
    pattern = re.compile(r"[^\n]*".join(parts))
    return any(pattern.search(" ".join(one.split())) for one in printed.splitlines())


def _run(command: list[str], folder: Path, code: int, where: str, seconds: float) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = os.environ | {"PATH": path, "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=seconds,
    )
    assert done.returncode == code, (
        f"{where}: exit code {done.returncode} instead of {code}\n{done.stdout}{done.stderr}"
    )
    return done.stdout + done.stderr
