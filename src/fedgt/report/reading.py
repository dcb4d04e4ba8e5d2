"""A run folder as the report sees it: checked, and harmless to print.

Whoever wrote `result.json` chose the client ids and reasons in it, so nothing is believed: the structure is validated,
numbers must be finite, and characters that nobody sees, which could make one client look like another, are spelled out.
Fields that this version does not know are kept: a report shows what a later version recorded.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from unicodedata import category

from pydantic import ValidationError

from fedgt.errors import SpecError
from fedgt.experiment import ExperimentSpec, RunResult, read_spec
from fedgt.experiment.result import SCHEMA_VERSION
from fedgt.text_file import decoded, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run folder holds.

    Attributes:
        result: `result.json` as nested dicts and lists, with unknown fields.
        result_hash: SHA-256 of the file, hexadecimal.
        spec: The resolved specification; None when there is no `spec.toml`.
        spec_text: Its text, "" when there is none.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     record = read_run(Path(folder))
        >>> record.spec.privacy
        4
    """

    result: Mapping[str, Any]
    result_hash: str
    spec: ExperimentSpec | None
    spec_text: str

    @property
    def spec_matches(self) -> bool | None:
        """Whether the specification is the one that the result was made with; None without a specification."""
        return None if self.spec is None else self.spec.digest == self.result["spec_hash"]


def read_run(folder: Path) -> RunRecord:
    """Read a run folder.

    Args:
        folder: As `fedgt run --out` leaves it; `spec.toml` may be missing.

    Raises:
        SpecError: If there is no readable `result.json`, or its content cannot be a result (the message names the key).

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     record = read_run(Path(folder))
        >>> record.result["status"], len(record.result_hash)
        ('finished', 64)
    """
    path = folder / "result.json"
    if not path.is_file():
        raise SpecError(f"{folder} holds no result.json; give a run folder, as `fedgt run SPEC --out DIR` leaves it")
    try:
        content = path.read_bytes()
        raw = json.loads(decoded(content, str(path)), parse_constant=_no_constant)
        result = _harmless(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not a readable result: {error}") from error
    _check(path, result)
    spec_path = folder / "spec.toml"
    spec = read_spec(spec_path) if spec_path.exists() else None
    return RunRecord(
        result=result,
        result_hash=hashlib.sha256(content).hexdigest(),
        spec=spec,
        spec_text="" if spec is None else _harmless(read_text(spec_path, "specification")),
    )


def _no_constant(name: str) -> float:
    raise ValueError(f'{name} is no JSON number; infinite numbers are the strings "inf" and "-inf"')


def _harmless(value: Any) -> Any:
    """Invisible characters (controls, direction overrides, lone surrogates) become escapes; numbers must be finite."""
    if isinstance(value, str):
        return "".join(f"\\u{ord(one):04x}" if _invisible(one) else one for one in value)
    if isinstance(value, list):
        return [_harmless(one) for one in value]
    if isinstance(value, dict):
        return {_harmless(key): _harmless(one) for key, one in value.items()}
    if isinstance(value, float) and not isfinite(value):
        raise ValueError('a number is too large; infinite numbers are the strings "inf" and "-inf"')
    return value


def _invisible(character: str) -> bool:
    return character not in "\n\t" and category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def _check(path: Path, result: Any) -> None:
    if isinstance(result, dict) and result.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise SpecError(
            f"{path}: schema_version {result['schema_version']!r}, this version of fedgt reads {SCHEMA_VERSION}; "
            "take the version that wrote it"
        )
    try:
        RunResult.model_validate(result)
    except ValidationError as error:
        # Fields are only ever added: an unknown one comes from a later version and does no harm.
        problems = [one for one in error.errors() if one["type"] != "extra_forbidden"]
        if problems:
            first = problems[0]
            key = ".".join(map(str, first["loc"])) or "the whole"
            raise SpecError(f"{path}: {key}: {first['msg']}; is this a result.json of fedgt?") from error
    ids = [client["id"] for client in result["clients"]]
    if len(set(ids)) != len(ids):
        raise SpecError(f"{path}: clients: an id stands there twice; ids must be unique")
    test = result["test"]
    if test is None:
        return
    groups = len(test["groups"])
    graded = test.get("kind") == "graded"
    if len(test["outcomes"]) != (0 if graded else groups) or set(test["outcomes"]) - set("01?"):
        raise SpecError(f"{path}: test.outcomes: one of 0, 1, ? for each of the {groups} groups is needed")
    if any(not 0 <= group < groups for client in result["clients"] for group in client["groups"]):
        raise SpecError(f"{path}: clients.groups: groups are numbered 0 to {groups - 1}")
