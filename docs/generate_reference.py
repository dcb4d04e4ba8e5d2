"""Writes the reference pages and JSON schemas in docs from the code: `make reference`. A test compares them.

    python docs/generate_reference.py [FOLDER]      # docs, unless another folder is given

The interface pages need `griffelib` (it comes with the extra `dev`).
"""

import json
import sys
from pathlib import Path
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedgt.experiment import ExperimentSpec
from fedgt.planning import plan_schema
from fedgt.record import result_schema
from fedgt.report import report_schema
from reference_api import api_pages
from reference_cli import cli_page

HERE = Path(__file__).parent
HEAD = """# The specification of a run

`fedgt run SPEC.toml --out DIR` reads a TOML file with these keys. Only `privacy` has no default.
`--set section.key=value` changes any of them. The specification with every default written out is
kept as `spec.toml` in the run folder. The SHA-256 of its canonical form is the `spec_hash` of the
result ([schema](result.schema.json)). Written by `make reference`.

| key | values | default | meaning |
|---|---|---|---|"""
KINDS = {int: "integer", float: "number", str: "text", bool: "true, false"}


def _values(field: FieldInfo) -> str:
    arguments = tuple(value for one in get_args(field.annotation) for value in get_args(one) or (one,))
    if arguments and all(isinstance(value, str) for value in arguments):
        return ", ".join(f"`{value}`" for value in arguments)
    kinds = [KINDS[kind] for kind in (arguments or (field.annotation,)) if kind in KINDS] or ["rows of integers"]
    return " or ".join(kinds) + (" or unset" if type(None) in arguments else "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none, must be given"
    return "unset" if field.default is None else f"`{json.dumps(field.default)}`".replace('"', "")


def _section(field: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """The options that a key holds, if it holds any, and whether it may stand several times."""
    kind = field.annotation
    several = get_args(kind)[:1] if get_args(kind)[1:] == (Ellipsis,) else ()
    found = several[0] if several else kind
    return (found, bool(several)) if isinstance(found, type) and issubclass(found, BaseModel) else (None, False)


def _rows(model: type[BaseModel], prefix: str = "") -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        section, several = _section(field)
        if section is None:
            rows.append(f"| `{prefix}{name}` | {_values(field)} | {_default(field)} | {field.description or ''} |")
            continue
        title = f"[[{prefix}{name}]]" if several else f"[{prefix}{name}]"
        known = issubclass(model, section)
        says = (
            f"{field.description} Its keys are those of [{prefix[:-1]}] that both have." if known else section.__doc__
        )
        rows.append(f"| **{title}** | | | {(says or '').strip()} |")
        rows += [] if known else _rows(section, f"{prefix}{name}.")
    return rows


def reference() -> dict[str, str]:
    """File name -> content."""
    return {
        "specification.md": "\n".join([HEAD, *_rows(ExperimentSpec)]) + "\n",
        "result.schema.json": json.dumps(result_schema(), indent=1) + "\n",
        "plan.schema.json": json.dumps(plan_schema(), indent=1) + "\n",
        "report.schema.json": json.dumps(report_schema(), indent=1) + "\n",
        "reference/cli.md": cli_page(),
        **api_pages(),
    }


def write(folder: Path) -> None:
    """All of `reference()` below a folder."""
    for name, content in reference().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
