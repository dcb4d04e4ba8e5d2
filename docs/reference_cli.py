"""The page docs/reference/cli.md, from the command line itself; `docs/generate_reference.py` writes it.

Nothing is taken from rendered help, whose lines depend on the terminal: only names, types, defaults and help texts.
"""

import inspect
from typing import Any, get_type_hints

import typer.main

import fedgt.cli
from fedgt.cli.run_options import describe

HEAD = """# Command line

Written by `make reference` from the code.

```text
fedgt [OPTIONS] COMMAND [ARGUMENTS]
```
"""


def cli_page() -> str:
    """The whole page: exit codes, the options of `fedgt` itself, and each command in the order of `fedgt --help`."""
    root: Any = typer.main.get_command(fedgt.cli.app)
    lines = [HEAD, *_exit_codes(), *_options(root), "## Commands", "", "| command | what it does |", "|---|---|"]
    commands = list(_commands(root, "fedgt"))
    for _, command in commands:
        describe(command)
    lines += [f"| [`{path}`](#{_slug(path)}) | {_first_line(command)} |" for path, command in commands]
    lines.append("")
    for path, command in commands:
        lines += [f"## `{path}`", "", *_described(command), "", "```text", _usage(path, command), "```", ""]
        lines += _arguments(command)
        lines += _options(command)
    return "\n".join(lines).rstrip() + "\n"


def _exit_codes() -> list[str]:
    """The paragraphs of the package's docstring after the first: what goes where, and the exit codes."""
    _, _, rest = inspect.cleandoc(fedgt.cli.__doc__ or "").partition("\n\n")
    return [rest, ""]


def _commands(group: Any, prefix: str) -> list[tuple[str, Any]]:
    found = []
    for name, command in group.commands.items():
        if command.hidden:
            continue
        path = f"{prefix} {name}"
        found += _commands(command, path) if hasattr(command, "commands") else [(path, command)]
    return found


def _slug(path: str) -> str:
    return path.replace(" ", "-")


def _first_line(command: Any) -> str:
    return _cell(inspect.cleandoc(command.help or "").partition("\n\n")[0])


def _described(command: Any) -> list[str]:
    """Paragraphs; typer's marks for line breaks go."""
    text = inspect.cleandoc(command.help or "").replace("\b", "").replace("\f", "")
    return [" ".join(text.split())] if "\n\n" not in text else text.splitlines()


def _visible(command: Any, kind: str) -> list[Any]:
    return [one for one in command.params if one.param_type_name == kind and not getattr(one, "hidden", False)]


def _usage(path: str, command: Any) -> str:
    parts = [path] + (["[OPTIONS]"] if _visible(command, "option") else [])
    for one in _visible(command, "argument"):
        name = (one.metavar or one.name or "").upper() + ("..." if one.nargs == -1 else "")
        parts.append(name if one.required else f"[{name}]")
    parts += [
        f"{one.opts[0]} {(one.metavar or one.name or '').upper()}"
        for one in _visible(command, "option")
        if one.required
    ]
    return " ".join(parts)


def _arguments(command: Any) -> list[str]:
    found = _visible(command, "argument")
    if not found:
        return []
    rows = [
        f"| `{(one.metavar or one.name).upper()}` | {_kind(one)} | {_default(one)} | {_cell(_help(command, one))} |"
        for one in found
    ]
    return ["| argument | value | default | meaning |", "|---|---|---|---|", *rows, ""]


def _help(command: Any, argument: Any) -> str:
    """The help of an argument, from the function: typer 0.20 loses it with click 8.4 and later."""
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    said = (getattr(one, "help", None) for one in getattr(hints.get(argument.name), "__metadata__", ()))
    return argument.help or next((text for text in said if text), "")


def _options(command: Any) -> list[str]:
    rows = []
    for one in _visible(command, "option"):
        names = ", ".join(f"`{name}`" for name in sorted(one.opts, key=len, reverse=True))
        if one.secondary_opts:
            names += " / " + ", ".join(f"`{name}`" for name in one.secondary_opts)
        several = ", repeatable" if one.multiple else ""
        rows.append(f"| {names} | {_kind(one)}{several} | {_default(one)} | {_cell(one.help or '')} |")
    return ["| option | value | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _kind(one: Any) -> str:
    if getattr(one, "is_flag", False):
        return ""
    choices = getattr(one.type, "choices", None)
    if choices is not None:
        return ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices)
    return {"integer": "integer", "float": "number", "path": "path", "text": "text", "string": "text"}.get(
        one.type.name, str(one.type.name)
    )


def _default(one: Any) -> str:
    if one.required:
        return "must be given"
    value = one.default
    if getattr(one, "is_flag", False):
        return "on" if value is True else ""
    if isinstance(value, str | int | float):
        return f"`{getattr(value, 'value', value)}`"
    return ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
