"""The pages docs/reference/api.md and docs/reference/api/*.md, from the source; `docs/generate_reference.py` writes them.

The source is read, not imported (griffe), so that the pages are the same on every version of Python and need no extra.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

SOURCE = Path(__file__).parents[1] / "src"

MODULES = {
    "fedgt.federation": "a federation and its rounds",
    "fedgt.types": "values that travel between stages",
    "fedgt.errors": "errors",
    "fedgt.design": "designs",
    "fedgt.grouping": "who sits where",
    "fedgt.planning": "search and plans",
    "fedgt.privacy": "privacy",
    "fedgt.secagg": "secure aggregation: protocol",
    "fedgt.engine": "secure aggregation: engine",
    "fedgt.flower": "Flower",
    "fedgt.nvflare": "NVIDIA FLARE",
    "fedgt.evidence": "graded evidence",
    "fedgt.screen": "the paper's screen",
    "fedgt.decode": "decoding of binary outcomes",
    "fedgt.train": "training of simulations",
    "fedgt.experiment": "experiments",
    "fedgt.record": "records of runs",
    "fedgt.report": "reports",
    "fedgt.reproduction.sweep": "many runs into one file",
}
"""Public modules, in the order of the overview."""

HEAD = """# Python interface

Written by `make reference` from the code. The names of `fedgt` itself are for a federation of your own and stay; those of
the sub-packages are public too, but may change between minor versions before 1.0.

## Names of `fedgt`

| name | what it is |
|---|---|"""
_SECTIONS = {
    "parameters": "Arguments",
    "other parameters": "Other arguments",
    "attributes": "Attributes",
    "returns": "Returns",
    "yields": "Yields",
    "raises": "Raises",
}


def api_pages() -> dict[str, str]:
    """File name below docs -> content."""
    package = griffe.load(
        "fedgt",
        search_paths=[SOURCE],
        docstring_parser="google",
        docstring_options={"warn_missing_types": False, "warnings": False},
        resolve_aliases=True,
        allow_inspection=False,
    )
    pages = {}
    homes: dict[str, str] = {}
    for path in MODULES:
        lines, anchors = _module_page(_module(package, path), path)
        pages[f"reference/api/{path}.md"] = "\n".join(lines).rstrip() + "\n"
        for target, anchor in anchors.items():
            homes[target] = f"api/{path}.md#{anchor}"
    overview = [HEAD]
    for name in sorted(str(one) for one in package.exports or ()):
        target = _member(package, name)
        link = homes.get(_home(target))
        shown = f"[`{name}`]({link})" if link else f"`{name}`"
        overview.append(f"| {shown} | {_cell(_first(target))} |")
    overview += ["", "## Sub-packages", "", "| module | about | |", "|---|---|---|"]
    overview += [
        f"| [`{path}`](api/{path}.md) | {title} | {_cell(_first(_module(package, path)))} |"
        for path, title in MODULES.items()
    ]
    pages["reference/api.md"] = "\n".join(overview) + "\n"
    return pages


def _module(package: Any, path: str) -> Any:
    module = package
    for part in path.split(".")[1:]:
        module = module.modules[part]
    return module


def _home(member: Any) -> str:
    """Where a name is defined, wherever it is shown."""
    return str((member.final_target if member.is_alias else member).path)


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    exported = module.exports
    if exported is not None:
        names = [str(name) for name in exported]
    else:
        names = [name for name, one in module.members.items() if not name.startswith("_") and not one.is_alias]
    for name in sorted(names, key=lambda name: (not _member(module, name).is_class, name.lower(), name)):
        yield name, _member(module, name)


def _member(module: Any, name: str) -> Any:
    """What a public name stands for; a sub-module of the same name (fedgt.design.contamination) is never meant."""
    member = module.members[name]
    return member.members[name] if member.is_module else member


def _module_page(module: Any, path: str) -> tuple[list[str], dict[str, str]]:
    lines = [f"# `{path}`", "", *_prose(module), ""]
    anchors: dict[str, str] = {}
    seen = {path.replace(".", "").lower()}
    for name, member in _public(module):
        one = member.final_target if member.is_alias else member
        anchor, number = name.lower(), 0
        while anchor in seen:
            number += 1
            anchor = f"{name.lower()}_{number}"
        seen.add(anchor)
        anchors[_home(member)] = anchor
        lines += [f"## `{name}`", "", *_object(name, one), ""]
    return lines, anchors


def _object(name: str, one: Any) -> list[str]:
    if one.is_function:
        return ["```python", _signature(name, one), "```", "", *_prose(one)]
    if one.is_class:
        return _class(name, one)
    value = "" if one.value is None else str(one.value)
    note = f": {one.annotation}" if one.annotation is not None and str(one.annotation) != "TypeAlias" else ""
    shown = f"{name}{note}" + (f" = {value}" if value and len(value) < 200 else "")
    return ["```python", shown, "```", "", *_prose(one)]


def _class(name: str, one: Any) -> list[str]:
    bases = ", ".join(str(base) for base in one.bases)
    lines = ["```python", f"class {name}({bases})" if bases else f"class {name}"]
    fields = [] if "Enum" in bases else list(_fields(one))
    values = [f"    {n} = {a.value}" for n, a in one.members.items() if a.is_attribute] if "Enum" in bases else []
    lines += [f"    {n}: {a.annotation}{_default(a)}" for n, a in fields]
    lines += [*values, "```", "", *_prose(one)]
    documented = {row.name for section in _sections(one) if section.kind.value == "attributes" for row in section.value}
    said = [(n, _field_help(a)) for n, a in fields if n not in documented]
    if any(text for _, text in said):
        lines += ["", *(f"- `{n}`: {text}" for n, text in said if text)]
    for method in one.members.values():
        if method.name == "__init__" and method.is_function and not fields:
            lines += ["", "```python", _signature(name, method), "```"]
        if method.name.startswith("_") or method.is_alias:
            continue
        if method.is_function:
            lines += ["", "```python", _signature(method.name, method), "```", "", *_prose(method)]
        elif "property" in method.labels:
            lines += ["", f"`{method.name}` (`{method.annotation}`)", "", *_prose(method)]
    return lines


def _fields(one: Any) -> Iterator[tuple[str, Any]]:
    """Annotated public fields of a dataclass or model, not properties, class variables or configuration."""
    for name, member in one.members.items():
        if name.startswith("_") or not member.is_attribute or member.annotation is None:
            continue
        if "property" not in member.labels and not str(member.annotation).startswith("ClassVar"):
            yield name, member


def _default(attribute: Any) -> str:
    """` = value`, or nothing where a value must be given; a value inside `field(...)` or `Field(...)` is shown alone."""
    text = str(attribute.value)
    if attribute.value is None:
        return ""
    if not text.startswith(("field(", "Field(")):
        return f" = {text}"
    given = list(attribute.value.arguments)
    factory = any(getattr(argument, "name", "").startswith("default") for argument in given)
    plain = next((str(argument) for argument in given if not hasattr(argument, "value")), None)
    return f" = {plain}" if plain is not None else " = ..." if factory else ""


def _field_help(attribute: Any) -> str:
    """The description of a pydantic field, or the text below an attribute."""
    if attribute.docstring is not None:
        return _cell(attribute.docstring.value)
    for argument in getattr(attribute.value, "arguments", []):
        if getattr(argument, "name", "") == "description":
            return _cell(str(argument.value).strip("'\""))
    return ""


def _signature(name: str, function: Any) -> str:
    """On one line where it fits, else one parameter a line."""
    parts: list[str] = []
    starred = False
    for one in function.parameters:
        kind = one.kind.value if one.kind is not None else ""
        if one.name in ("self", "cls") and not parts:
            continue
        if kind == "keyword-only" and not starred:
            parts.append("*")
            starred = True
        starred = starred or kind == "variadic positional"
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        text = stars + one.name + (f": {one.annotation}" if one.annotation is not None else "")
        if one.default is not None and not stars:
            text += f" = {one.default}" if one.annotation is not None else f"={one.default}"
        parts.append(text)
    end = f") -> {function.returns}" if function.returns is not None and function.name != "__init__" else ")"
    line = f"{name}({', '.join(parts)}{end}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), end])


def _sections(one: Any) -> list[Any]:
    return [] if one.docstring is None else one.docstring.parsed


def _prose(one: Any) -> list[str]:
    """A docstring as Markdown: text as it is, the other sections as lists."""
    lines: list[str] = []
    for section in _sections(one):
        kind = section.kind.value
        if kind == "text":
            lines += [section.value, ""]
        elif kind in _SECTIONS:
            lines += [f"**{_SECTIONS[kind]}**", "", *(_row(kind, row) for row in section.value), ""]
        elif kind == "examples":
            parts = [text if part.value == "text" else f"```pycon\n{text}\n```" for part, text in section.value]
            lines += ["**Example**", "", "\n\n".join(parts), ""]
        elif kind == "admonition":
            lines += [f"**{section.title or 'Note'}**", "", str(section.value.description), ""]
    return lines[:-1] if lines else []


def _row(kind: str, row: Any) -> str:
    name = getattr(row, "name", "")
    if kind == "raises":
        head = f"`{row.annotation}`"
    elif name:
        head = f"`{name}`"
    else:
        return f"- {_text(row.description)}"
    return f"- {head}: {_text(row.description)}"


def _text(text: str) -> str:
    return " ".join(text.split())


def _first(one: Any) -> str:
    target = one.final_target if one.is_alias else one
    return "" if target.docstring is None else target.docstring.value.partition("\n\n")[0]


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")
