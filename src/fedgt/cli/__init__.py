"""The command line: one file per command. Data goes to stdout, progress to stderr.

Exit codes: 0 all well, 1 the work failed (outcomes that contradict each other and runs that end early included), 2 bad usage
or bad input.
"""

import os
import sys

import typer

from fedgt._version import __version__
from fedgt.cli import (
    decode_command,
    demo_command,
    design_command,
    doctor_command,
    features_command,
    keygen_command,
    privacy_command,
    report_command,
    reproduce_command,
    run_command,
)
from fedgt.errors import CalibrationError, DesignError, FedGTError, ShapeError, SpecError

app = typer.Typer(
    name="fedgt",
    help="Find and remove malicious clients in federated learning without giving up secure aggregation.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo_command.demo)
app.command("run")(run_command.run)
app.command("report")(report_command.report)
app.command("decode")(decode_command.decode)
app.command("design")(design_command.design)
app.command("privacy")(privacy_command.privacy)
app.command("reproduce")(reproduce_command.reproduce)
app.command("features")(features_command.features)
app.command("keygen")(keygen_command.keygen)
app.command("doctor")(doctor_command.doctor)


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
    try:
        app()
    except (SpecError, DesignError, ShapeError, CalibrationError) as error:
        typer.echo(f"fedgt: {error}", err=True)
        sys.exit(2)
    except FedGTError as error:
        typer.echo(f"fedgt: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough; without this Python complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        typer.echo(f"fedgt: {error}", err=True)
        sys.exit(1)
