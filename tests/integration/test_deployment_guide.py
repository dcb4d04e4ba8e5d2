"""The deployment guide runs as written, on loopback: from `fedgt design` over SuperLink, SuperNodes and TLS to the report."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from doc_blocks import run_page

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "deploy.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(shutil.which(command) is None for command in ("flower-superlink", "openssl", "ssh-keygen")),
        reason="needs flower-superlink, openssl and ssh-keygen on the PATH",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty one; whatever was started there is ended."""
    yield tmp_path
    for file in tmp_path.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_the_guide_over_tls_ends_with_the_report_of_the_run_that_it_set_up(folder: Path) -> None:
    assert run_page(GUIDE, folder, seconds=400) >= 10
    report = json.loads((folder / "runs" / "winter" / "report.json").read_text())
    assert not report["simulation"]
    assert (folder / "runs" / "winter" / "report.html").is_file()
