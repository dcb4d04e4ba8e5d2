"""The example with torch, as it is: `make test-torch` installs torch and runs it."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: make test-torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch-digits" / "federation.py"

pytestmark = pytest.mark.filterwarnings("default")


def test_the_four_sites_that_mislabel_their_nines_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"round {number}" for number in range(1, 6)]
    assert lines[-1].endswith("excluded: site-02 site-05 site-11 site-13")
