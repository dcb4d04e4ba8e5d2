"""Options of a command that are options of a run: help, choices and defaults come from the definition of the option.

The definitions take a while to load, so they are looked up when they are needed: by the help of the command that has them,
and by the command itself.
"""

import re
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    import click

_MARK = re.compile(r"<decode\.(\w+)>(.*)", re.DOTALL)


def option_of(name: str, more: str = "", **typer_options: Any) -> Any:
    """An option that stands for a key of section `decode`; its default in Python is None, "as it is defined".

    Args:
        name: Of the field of `fedgt.federation.DecodeSettings`.
        more: What else to say.
        typer_options: For `typer.Option`.
    """
    return typer.Option(help=f"<decode.{name}>{more}", **typer_options)


def given(**options: Any) -> dict[str, Any]:
    """Those that were given."""
    return {name: value for name, value in options.items() if value is not None}


def describe(command: "click.Command") -> None:
    """Put the definitions into the help of a command."""
    from fedgt.federation.settings import DecodeSettings

    for option in command.params:
        found = _MARK.fullmatch(getattr(option, "help", None) or "")
        if found is None:
            continue
        field = DecodeSettings.model_fields[found[1]]
        choices = [one for one in _literals(field.annotation) if one != "auto"]
        known = f" One of {', '.join(choices)}." if choices else ""
        option.help = f"{field.description}{known}{found[2]}"
        option.default = field.default


def _literals(annotation: Any) -> list[str]:
    """The strings that a type allows; none where it allows others."""
    parts = get_args(annotation)
    return [one for part in parts for one in ([part] if isinstance(part, str) else _literals(part))]


class DescribedCommand(TyperCommand):
    """A command with such options."""

    def format_help(self, ctx: "click.Context", formatter: "click.HelpFormatter") -> None:
        """The help, with the definitions in it."""
        describe(self)
        super().format_help(ctx, formatter)
