"""The command line as a whole: help, start-up, completion, colours, exit codes, and one JSON object from every command."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from command_line import called
from fedgt.design import named_design
from fedgt.record import RunResult
from fedgt.record.progress import RunProgress
from slow_cases import slow

DOCUMENTED = Path(__file__).parents[2] / "docs" / "json-output.md"
COMMANDS = (
    "demo",
    "run",
    "watch",
    "report",
    "compare",
    "reproduce",
    "features",
    "design",
    "privacy",
    "decode",
    "new",
    "keygen",
    "terms",
    "doctor",
)


def fedgt(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "fedgt", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**surroundings, "COLUMNS": "80", "LINES": "24", **environment},
    )


def test_the_help_fits_a_screen_and_groups_the_commands() -> None:
    done = fedgt("--help")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    order = [
        line.split()[0].rstrip(":") for line in lines if re.match(r"(Simulate|Experiments|Plan|Deploy)|  \w", line)
    ]
    panels = [
        "Simulate",
        *COMMANDS[:4],
        "Experiments",
        *COMMANDS[4:7],
        "Plan",
        *COMMANDS[7:10],
        "Deploy",
        *COMMANDS[10:],
    ]
    assert order == panels
    assert "..." not in "".join(line for line in lines if line.startswith("  ")), "a summary was cut off"
    for code in ("0 ok", "1 failed", "2 wrong usage", "130 Ctrl-C"):
        assert code in lines[-2]
    assert fedgt("-h").stdout == done.stdout
    bare = fedgt()
    assert (bare.returncode, bare.stdout, bare.stderr.strip()) == (2, "", done.stdout.strip())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    done = called(command, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_the_help_starts_fast() -> None:
    """CPU seconds of the best of five, so that a busy machine does not count; the bound is that of the specification."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        fedgt("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.4


def test_the_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['fedgt', '--help']\nimport fedgt.cli\ntry:\n    fedgt.cli.main()\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'scipy', 'sympy', 'sklearn', 'pydantic', 'cryptography', 'ssl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_a_shell(shell: str, tmp_path: Path) -> None:
    done = fedgt("--show-completion", shell)
    assert done.returncode == 0, done.stderr
    assert f"_FEDGT_COMPLETE=complete_{shell}" in done.stdout
    if shell == "bash":
        (tmp_path / "completion").write_text(done.stdout)
        subprocess.run(["/bin/bash", "-n", tmp_path / "completion"], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedgt rep", ["report", "reproduce"]),
        ("fedgt d", ["demo", "design", "decode", "doctor"]),
        ("fedgt decode --strategy pub", ["published-count", "published-delta"]),
        ("fedgt demo --method ", ["graded", "paper"]),
        ("fedgt run --strategy publ", ["published-count", "published-delta"]),
        ("fedgt run --method no", ["no-defence"]),
        ("fedgt design --name bch", ["bch-15x8", "bch-31x10"]),
        ("fedgt run --res", ["--resume"]),
    ],
)
@pytest.mark.parametrize("shell", ["bash", *slow("zsh", "fish")])
def test_commands_options_and_choices_are_completed(shell: str, words: str, expected: list[str]) -> None:
    done = fedgt(
        _FEDGT_COMPLETE=f"complete_{shell}",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
        _TYPER_COMPLETE_ARGS=words,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    if shell == "zsh":
        offered = re.findall(r'(?:\(|\n *)"([\w-]+)"', done.stdout)
    else:
        offered = [line.split("\t")[0] for line in done.stdout.split("\n") if line]
    assert offered == expected, done.stdout


def colours(text: str) -> list[str]:
    """The colour codes in a text; bold and dim are no colours."""
    codes = [code for found in re.findall(r"\x1b\[([\d;]*)m", text) for code in found.split(";")]
    return [code for code in codes if re.fullmatch(r"[349][0-7]|10[0-7]|[34]8", code)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix, a specification, and the run of it."""
    path = tmp_path_factory.mktemp("cli")
    rows = named_design("bch-15x8").matrix.tolist()
    (path / "A.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    (path / "s.toml").write_text(
        "privacy = 4\n[federation]\nrounds = 1\n[attack]\nmalicious = 2\nsource = 9\ntarget = 3\n"
    )
    assert called("run", "s.toml", "--out", "run", cwd=path).returncode == 0
    return path


@pytest.mark.parametrize(
    "arguments", [("watch", "run"), ("decode", "--help"), *slow((("run", "s.toml", "--out", "new"),))]
)
def test_no_color_means_no_colour(folder: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    given = [str(tmp_path / one) if one == "new" else one for one in arguments]
    plain = fedgt(*given, cwd=folder, NO_COLOR="1", FORCE_COLOR="1", FORCE_TERMINAL="1", TERM="xterm-256color")
    assert plain.returncode == 0, plain.stderr
    assert colours(plain.stdout + plain.stderr) == []


def test_a_terminal_without_no_color_has_colours() -> None:
    """So that the test above can fail."""
    assert colours(fedgt("decode", "--help", FORCE_COLOR="1", TERM="xterm-256color").stdout)


def documented(command: str) -> set[str]:
    """The fields that docs/json-output.md names for a command."""
    (row,) = [line for line in DOCUMENTED.read_text().splitlines() if line.startswith(f"| `{command}")]
    return set(re.findall(r"`([a-z_]+)`", row.split("|")[2]))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("run", ["run", "s.toml", "--out", "run", "--resume"]),
        ("watch", ["watch", "run"]),
        ("report RUN_DIR", ["report", "run"]),
        ("design --matrix", ["design", "--matrix", "A.csv"]),
        ("privacy", ["privacy", "--matrix", "A.csv"]),
        ("decode", ["decode", "--matrix", "A.csv", "--outcomes", "11010000", "--strategy", "ranked", "--explain"]),
        ("new", ["new", "flower-app", "app", "--sites", "8"]),
        ("new", ["new", "nvflare-app", "flare-app", "--sites", "8"]),
        ("keygen", ["keygen", "site-1", "--key", "site-1.pem"]),
        ("doctor", ["doctor"]),
    ],
)
def test_json_is_one_documented_object(
    folder: Path, command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("TELEMETRY_ENABLED", "0"), ("DISABLE_UPDATE_CHECK", "1")):
        monkeypatch.setenv(f"FLWR_{name}", value)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    done = called(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if command == "report RUN_DIR":
        assert answer == json.loads((folder / "run" / "report.json").read_text())
        return
    named = documented(command) - {"result"}
    assert set(answer) == named
    if command == "run":
        assert named == set(RunResult.model_fields)
    if command == "watch":
        assert named == set(RunProgress.model_fields)


@pytest.mark.slow
def test_json_of_the_demo_and_of_a_search(tmp_path: Path) -> None:
    search = ["design", "--clients", "8", "--privacy", "2", "--max-malicious", "2", "--effort", "0.05", "--json"]
    assert set(json.loads(called(*search).stdout)) == documented("design --clients")
    answer = json.loads(called("demo", "--json").stdout)
    assert set(answer) == {"no-defence", "fedgt", "oracle"}
    assert set(answer["fedgt"]) == set(RunResult.model_fields)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["watch", "run"], 0),
        (["watch", "."], 2),
        (["watch", "nowhere", "--json"], 2),
        (["report", "nowhere", "--json"], 2),
        (["decode", "--matrix", "A.csv", "--outcomes", "01", "--json"], 2),
        (["run", "s.toml", "--out", "run", "--json"], 2),
        (["run", "s.toml", "--out", "run", "--resume", "--overwrite"], 2),
        (["run", "s.toml", "--out", "run", "--resume", "--seed", "5"], 2),
        (["demo", "--nonsense"], 2),
        (["doctor", "--policy", "nowhere.toml", "--json"], 1),
    ],
)
def test_exit_codes_are_as_documented(folder: Path, arguments: list[str], code: int) -> None:
    done = called(*arguments, cwd=folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code == 2:
        assert done.stdout == ""
        assert done.stderr.startswith(("fedgt: ", "Usage: "))


def test_near_misses_of_commands_and_options_are_named() -> None:
    assert "'report'" in called("reprot").stderr
    assert "--matrix" in called("decode", "--matrx", "A.csv").stderr


START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fedgt.cli import main; sys.argv[0] = 'fedgt'; main()"
)
"""`fedgt` with Ctrl-C at work: a process that was started in the background has it ignored, and so have its children."""


@pytest.mark.slow
def test_ctrl_c_is_an_exit_code_and_a_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "demo", "--out", str(tmp_path / "demo")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("demo/*/state.npz")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "fedgt: interrupted")


def _rounds(table: Path) -> int:
    return len(table.read_text().splitlines()) - 1 if table.exists() else 0


@pytest.mark.slow
def test_a_watched_run_is_interrupted_when_its_process_is_gone(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "privacy = 2\n[federation]\nclients = 7\nrounds = 200\n[screen]\nkind = 'clusters'\n[design]\n"
        "matrix = [[1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 1, 1, 0], [0, 1, 0, 1, 0, 0, 1]]\n"
        "[decode]\nkappa = 0.9\non_undecidable = 'keep-all'\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "fedgt", "run", "s.toml", "--out", "run"], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while _rounds(tmp_path / "run" / "rounds.csv") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    going = called("watch", "run", cwd=tmp_path)
    seen: Any = json.loads(called("watch", "run", "--json", cwd=tmp_path).stdout)
    process.kill()
    process.wait()
    gone = called("watch", "run", cwd=tmp_path)
    assert going.returncode == 0
    assert "fedgt: running, " in going.stdout
    assert "P(malicious)" in going.stdout
    assert "\x1b" not in going.stdout
    assert seen["state"] == "running"
    assert 1 <= seen["finished"] < 200
    assert seen["seconds_left"] > 0
    assert len(seen["clients"]) == 7
    assert gone.returncode == 1
    assert "fedgt: interrupted, " in gone.stdout
    assert "go on with: fedgt run run/spec.toml --out run --resume" in gone.stdout
