"""The command `fedgt` itself: help that fits a screen, commands in groups, and what Ctrl-C does."""

from itertools import groupby
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    import click

PANELS = ("Simulate", "Experiments", "Plan and decide", "Deploy")
"""The groups of commands, in the order of the help."""

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

_OTHER = "Other"
_LAST = (
    "Exit codes: 0 ok, 1 failed or ended early, 2 wrong usage or input, 130 Ctrl-C.",
    "fedgt COMMAND --help shows its options; with --json it prints one JSON object.",
)


class Root(TyperGroup):
    """All commands. The help is written by hand: that of typer needs twice the lines, and loads much to colour them."""

    def format_help(self, ctx: "click.Context", formatter: "click.HelpFormatter") -> None:
        """Usage, commands by panel, options, exit codes: within 80 columns and 24 lines."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(_panel(one), name, one) for name, one in commands if one is not None and not one.hidden]
        order = [*PANELS, _OTHER]
        shown.sort(key=lambda one: order.index(one[0]))  # stable: within a panel as they were added
        width = max(len(name) for _, name, _ in shown)
        lines = [f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...", self.help or ""]
        for panel, members in groupby(shown, key=lambda one: one[0]):
            lines += ["", f"{panel}:"] if panel == shown[0][0] else [f"{panel}:"]
            lines += [f"  {name:<{width}}  {one.get_short_help_str(limit=76 - width)}" for _, name, one in members]
        options = [" ".join(one.opts) for one in self.get_params(ctx) if _is_shown(one)]
        lines += [f"Options: {', '.join(options)}", *_LAST]
        formatter.write("\n".join(lines) + "\n")

    def parse_args(self, ctx: "click.Context", args: list[str]) -> list[str]:
        """Without any argument the help, on stderr: nothing was asked for."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: "click.Context") -> Any:
        """Run the command; Ctrl-C is an exit code and a line, not a traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("\nfedgt: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _panel(command: "click.Command") -> str:
    panel = getattr(command, "rich_help_panel", None)
    return panel if panel in PANELS else _OTHER


def _is_shown(parameter: "click.Parameter") -> bool:
    return bool(parameter.opts) and not getattr(parameter, "hidden", False)
