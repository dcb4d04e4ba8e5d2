"""The command line: one file per command. Data goes to stdout, progress to stderr.

Exit codes: 0 all well, 1 the work failed (outcomes that contradict each other and runs that end early included), 2 bad usage
or bad input, 130 interrupted. With --json a command prints one JSON object (docs/json-output.md); errors are lines on stderr
there as well, and stdout is empty then.
"""

import os
import sys

import typer

from fedgt._version import __version__
from fedgt.cli import (
    compare_command,
    decode_command,
    demo_command,
    design_command,
    doctor_command,
    features_command,
    keygen_command,
    new_command,
    privacy_command,
    report_command,
    reproduce_command,
    run_command,
    terms_command,
    watch_command,
)
from fedgt.cli.root import INTERRUPTED, PANELS, Root
from fedgt.cli.run_options import DescribedCommand
from fedgt.cli.streams import forgive_readers
from fedgt.errors import CalibrationError, DesignError, FedGTError, ShapeError, SpecError
from fedgt.foreign_text import plain

_SIMULATE, _EXPERIMENTS, _PLAN, _DEPLOY = PANELS

app = typer.Typer(
    name="fedgt",
    cls=Root,
    help="Find and remove malicious clients in federated learning with secure aggregation.",
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _panel, _summary, _command in (
    ("demo", _SIMULATE, "15 clients learn digits, 5 of them cheat: see them found", demo_command.demo),
    ("run", _SIMULATE, "Simulate the federation of a specification file", run_command.run),
    ("watch", _SIMULATE, "How far a run is: rounds, accuracy, stage, verdicts", watch_command.watch),
    ("report", _SIMULATE, "The audit report of a run: report.html and report.json", report_command.report),
    ("compare", _EXPERIMENTS, "Several defences on the same federations, one row a run", compare_command.compare),
    ("reproduce", _EXPERIMENTS, "The paper's tables and curves, row by row", reproduce_command.reproduce),
    ("features", _EXPERIMENTS, "Image features of a frozen network, made once", features_command.features),
    ("design", _PLAN, "Describe a design, or search the best for your demands", design_command.design),
    ("privacy", _PLAN, "What the sums of a design reveal, and about whom", privacy_command.privacy),
    ("decode", _PLAN, "Who is malicious, given the outcomes of group tests", decode_command.decode),
    ("new", _DEPLOY, "Write a Flower or NVIDIA FLARE app that runs as it is", new_command.new),
    ("keygen", _DEPLOY, "Make the long-term keys of a client or the server", keygen_command.keygen),
    ("terms", _DEPLOY, "Show the agreed terms of a run, and sign them", terms_command.terms),
    ("doctor", _DEPLOY, "Is this machine ready to take part?", doctor_command.doctor),
):
    app.command(_name, cls=DescribedCommand, rich_help_panel=_panel, short_help=_summary)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedgt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; every error of fedgt becomes one line on stderr and an exit code."""
    match sys.argv[1:]:
        case ["--show-completion", ("bash" | "zsh" | "fish" | "powershell" | "pwsh") as shell]:
            # The script of a shell other than the one at work, which typer would take.
            os.environ["_FEDGT_COMPLETE"] = f"source_{shell}"
    if "_FEDGT_COMPLETE" in os.environ:
        # Help that typer wraps would become further candidates, its second lines.
        os.environ["COLUMNS"] = "10000"
    forgive_readers()
    try:
        try:
            app(prog_name="fedgt")
        finally:
            if sys.stdout is not None:  # it may be closed from the start
                sys.stdout.flush()
    except (SpecError, DesignError, ShapeError, CalibrationError) as error:
        _complain(error)
        sys.exit(2)
    except FedGTError as error:
        _complain(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        reason = error.strerror or str(error)
        _complain(OSError(f"{error.filename}: {reason}" if error.filename is not None else reason))
        sys.exit(1)


def _complain(error: Exception) -> None:
    """Our lines, without what a name or a file could do to the terminal."""
    lines = str(error).split("\n")
    typer.echo("fedgt: " + "\n".join(plain(line, longest=None) for line in lines), err=True)
