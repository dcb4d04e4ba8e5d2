"""Options are defined once, as pydantic fields with their limits and descriptions: `Options` is what such a class inherits.

What is wrong with them is said in words: the key, its value, what was needed, and the nearest valid spelling.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedgt.errors import SpecError

_LONGEST = 60

_NEEDED = {
    "int_type": "an integer is needed",
    "int_from_float": "an integer is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed",
    "string_type": "text in quotes is needed",
    "tuple_type": "a list in brackets is needed",
    "finite_number": "a finite number is needed",
}
_LIMITS = {
    "greater_than_equal": ("ge", "at least {} is needed"),
    "greater_than": ("gt", "a number above {} is needed"),
    "less_than_equal": ("le", "at most {} is possible"),
    "less_than": ("lt", "a number below {} is needed"),
}
_KIND = {"int_type": int, "int_from_float": int, "float_type": float, "bool_type": bool}


# Strict: true is not the number 1, "4" is not 4; a promise must be what was written.
_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

if TYPE_CHECKING:

    class Options(BaseModel):
        """What type checkers see: they do not follow a metaclass."""

        model_config = _STRICT

else:

    class _Checked(type(BaseModel)):
        def __call__(cls, **options):
            try:
                return super().__call__(**options)
            except ValidationError as error:
                raise SpecError(explained(error, cls)) from error

    class Options(BaseModel, metaclass=_Checked):
        """A section of options: a wrong one is a `SpecError` where the class is called.

        In a specification pydantic makes the section, and the error names the file as well.
        """

        model_config = _STRICT


def syntax_error(path: Path, content: str, error: Exception) -> str:
    """A TOML error as editors like it: file:line:column, then what is wrong."""
    text = str(error)
    if text.endswith("(at end of document)"):
        lines = content.splitlines() or [""]
        text = text.replace("(at end of document)", f"(at line {len(lines)}, column {len(lines[-1]) + 1})")
    found = re.search(r" ?\(at line (\d+), column (\d+)\)$", text)
    if found is not None:
        return f"{path}:{found[1]}:{found[2]}: not valid TOML: {text[: found.start()]}"
    return f"{path}: not valid TOML: {text}"


def explained(error: ValidationError, model: type[BaseModel], outside: Collection[str] = ()) -> str:
    """All that is wrong in one line.

    Args:
        error: What pydantic found.
        model: The specification.
        outside: Dotted keys that were set by options, not in the file.
    """
    told = []
    for location, items in _by_key(error, model).items():
        text = _explained(location, items, model)
        key = ".".join(location)
        told.append(f"{text} (set by an option, not in the file)" if key in outside else text)
    return "; ".join(told)


def _by_key(error: ValidationError, model: type[BaseModel]) -> dict[tuple[str, ...], list[Any]]:
    """The problems of each key; the alternatives of a union are one key."""
    found: dict[tuple[str, ...], list[Any]] = {}
    for item in error.errors():
        location = tuple(str(part) for part in item["loc"])
        if item["type"] not in ("extra_forbidden", "missing"):
            location = tuple(_without_tags(location, model))
        found.setdefault(location, []).append(item)
    return found


def _without_tags(location: Sequence[str], model: type[BaseModel]) -> Iterator[str]:
    """The keys and indices of a location, without the names that pydantic gives the alternatives of a union."""
    for number, part in enumerate(location):
        if part.isdigit() or part in _keys(model, location[:number]):
            yield part


def _explained(location: tuple[str, ...], items: Sequence[Any], model: type[BaseModel]) -> str:
    item, key = items[0], ".".join(location)
    if item["type"] == "extra_forbidden":
        what = "section" if isinstance(item["input"], dict) else "key"
        known = _keys(model, location[:-1])
        near = nearest(location[-1], known)
        return f"unknown {what} {key!r}; " + (f"did you mean {near!r}?" if near else f"known are {', '.join(known)}")
    if item["type"] == "missing":
        return f"{key!r} is missing: {_description(model, location)}"
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item.get("input")
    if not key or (item["type"] == "value_error" and isinstance(value, (Mapping, BaseModel))):
        return message
    return f"{key} = {_shown(value)}: {_needed(items, value, message)}"


def _needed(items: Sequence[Any], value: Any, message: str) -> str:
    choices = [choice for item in items for choice in _choices(item)]
    if choices:
        near = nearest(value, choices) if isinstance(value, str) else None
        return f"one of {', '.join(choices)} is needed" + (f"; did you mean {near!r}?" if near else "")
    item = items[0]
    if item["type"] in ("model_type", "model_attributes_type"):
        name = item["loc"][0]
        return f"sections are needed: [[{name}]]" if len(item["loc"]) > 1 else f"a section is needed: [{name}]"
    if item["type"] == "tuple_type" and list(item["loc"]) == ["faults"]:
        return "sections are needed: [[faults]]"
    if item["type"] in _LIMITS:
        limit, text = _LIMITS[item["type"]]
        return text.format(item["ctx"][limit])
    needed = _NEEDED.get(item["type"], message)
    meant = _converted(value, _KIND.get(item["type"]))
    return needed if meant is None else f"{needed}; did you mean {meant}?"


def _choices(item: Any) -> list[str]:
    return re.findall(r"'([^']*)'", str(item["ctx"]["expected"])) if item["type"] == "literal_error" else []


def _converted(value: Any, kind: type | None) -> str | None:
    """The value as TOML of the right kind, where what is meant is plain: "4" for 4, 4.0 for 4."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return str(int(value))
    if kind is None or not isinstance(value, str):
        return None
    text = value.strip().lower() if kind is bool else value.strip()
    try:
        parsed = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return None
    right = isinstance(parsed, (int, float) if kind is float else kind) and isinstance(parsed, bool) == (kind is bool)
    return f"{text}, without quotes" if right else None


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that is spelt most like this one, whatever the case; None where none is near."""
    wanted, folded = _folded(word), {_folded(one): one for one in known}
    longer = [one for one in folded if len(wanted) > 2 and one.startswith(wanted)]
    near = longer or difflib.get_close_matches(wanted, folded, n=1)
    return folded[near[0]] if near else None


def _folded(word: str) -> str:
    return word.casefold().replace("_", "-")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _model_at(model: type[BaseModel], location: Sequence[str]) -> type[BaseModel] | None:
    """The section that a location leads to; None where it leads to a value."""
    here: type[BaseModel] | None = model
    for part in location:
        if part.isdigit():
            continue  # an entry of a list of sections
        field = here.model_fields.get(part) if here is not None else None
        kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
        here = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return here


def _keys(model: type[BaseModel], location: Sequence[str]) -> list[str]:
    here = _model_at(model, location)
    return [] if here is None else list(here.model_fields)


def _description(model: type[BaseModel], location: Sequence[str]) -> str:
    here = _model_at(model, location[:-1])
    field = None if here is None else here.model_fields.get(location[-1])
    return (field.description if field is not None else None) or "a value is needed"


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def differences(there: BaseModel, here: BaseModel, *, most: int = 5) -> str:
    """The keys in which two specifications differ, with both values."""
    return differing(there.model_dump(mode="json"), here.model_dump(mode="json"), most=most)


def differing(
    there: Mapping[str, Any], here: Mapping[str, Any], *, without: Collection[str] = (), most: int = 5
) -> str:
    """The same for nested sections; keys in `without` may differ."""
    old, new = flat(there), flat(here)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) and key not in without]
    told = [f"{key} = {_as_json(old.get(key))} there, {_as_json(new.get(key))} here" for key in keys[:most]]
    return "; ".join(told) + (f"; and {len(keys) - most} more" if len(keys) > most else "")


def _as_json(value: Any) -> str:
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
