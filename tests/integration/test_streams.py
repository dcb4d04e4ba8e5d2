"""A reader that leaves does not decide how a command ends; a full disk is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slow_cases import slow

FULL = Path("/dev/full")
posix = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def fedgt(*arguments: str, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    command = [sys.executable, "-m", "fedgt", *arguments]
    done = subprocess.run(command, stdout=stdout, stderr=stderr, text=True, check=False)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), 0),
        (("design", "--name", "bch-15x8"), 0),
        *slow((("design", "--name", "bch-15x8", "--json"), 0), (("design", "--help"), 0)),
        (("design", "--name", "nothing"), 2),
    ],
)
@pytest.mark.parametrize("both", [False, *slow(True)])
def test_the_exit_code_is_that_of_the_work_when_nobody_reads(arguments: tuple[str, ...], code: int, both: bool) -> None:
    for _ in range(2):
        reading, writing = os.pipe()
        os.close(reading)
        found, said = fedgt(*arguments, stdout=writing, stderr=writing if both else subprocess.PIPE)
        os.close(writing)
        assert found == code
        assert "Traceback" not in said
        assert "Broken pipe" not in said


@posix
@pytest.mark.parametrize("arguments", [("--help",), ("design", "--name", "bch-15x8"), ("--version",)])
def test_a_full_disk_behind_standard_output_is_said_once(arguments: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        code, said = fedgt(*arguments, stdout=full.fileno())
    assert code == 1
    assert said == "fedgt: standard output: No space left on device\n"


@posix
def test_a_full_disk_behind_a_file_is_said_with_its_path() -> None:
    code, said = fedgt("design", "--name", "bch-15x8", "--write", str(FULL), stdout=subprocess.DEVNULL)
    assert (code, said) == (1, "fedgt: /dev/full: No space left on device\n")


@posix
def test_an_error_that_cannot_be_said_keeps_its_exit_code() -> None:
    with FULL.open("w") as full:
        code, _ = fedgt("design", "--name", "nothing", stdout=subprocess.DEVNULL, stderr=full.fileno())
    assert code == 2
