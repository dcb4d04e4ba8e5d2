"""A run folder as the report sees it: checked, and harmless to print.

Whoever wrote `result.json` chose the client ids and reasons in it, so nothing is believed: the structure is validated,
numbers must be finite, and characters that nobody sees, which could make one client look like another, are spelled out.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from unicodedata import category

from pydantic import ValidationError

from fedgt.errors import SpecError
from fedgt.experiment import read_spec
from fedgt.federation.kept_evidence import KeptEvidence, read_kept
from fedgt.federation.run_settings import digest_of
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.record.claim import PROGRESS
from fedgt.record.progress import read_progress
from fedgt.record.result import SCHEMA_VERSION, RunResult
from fedgt.text_file import decoded, read_content, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run folder holds.

    Attributes:
        result: `result.json` as nested dicts and lists.
        result_hash: SHA-256 of the file, hexadecimal.
        plan_hash: The same of `plan.json`; None when there is none.
        setup: How the run was set up; None when neither `spec.toml` nor `settings.toml` is there.
        kept: What its tests compared; None when it is not there, or cannot be read.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import read_run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     record = read_run(Path(folder))
        >>> record.setup.file
        'spec.toml'
    """

    result: Mapping[str, Any]
    result_hash: str
    plan_hash: str | None
    setup: "Setup | None"
    kept: KeptEvidence | None = None

    @property
    def spec_matches(self) -> bool | None:
        """Whether the setup is the one that the result was made with; None without one."""
        return None if self.setup is None else self.setup.digest == self.result["spec_hash"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a run was set up.

    Attributes:
        file: `spec.toml` of a simulation, `settings.toml` of a real run.
        text: What it says.
        digest: Its hash, as results have it.
        screen: How groups were tested.
        decode: How suspects were named.
        rounds: How many were planned.
        data: The name of the data set, of a simulation.
    """

    file: str
    text: str
    digest: str
    screen: ScreenSettings
    decode: DecodeSettings
    rounds: int
    data: str | None


def read_run(folder: Path) -> RunRecord:
    """Read a run folder.

    Args:
        folder: As `fedgt run --out` or `FederationRun(folder=...)` leaves it; all but the result may be missing.

    Raises:
        SpecError: If there is no readable `result.json` (of an interrupted run it says how to go on), or its content cannot
            be a result (the message names the key).

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
        raise SpecError(_no_result(folder))
    try:
        content = path.read_bytes()
        raw = json.loads(decoded(content, str(path)), parse_constant=_no_constant)
        result = _harmless(raw)
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not a readable result: {error}") from error
    result = _checked(path, result)
    plan = folder / "plan.json"
    return RunRecord(
        result=result,
        result_hash=hashlib.sha256(content).hexdigest(),
        plan_hash=hashlib.sha256(read_content(plan, "plan")).hexdigest() if plan.exists() else None,
        setup=_setup(folder),
        kept=_kept(folder),
    )


def _no_result(folder: Path) -> str:
    """Why there is nothing to report yet, and what to do."""
    if not (folder / PROGRESS).exists():
        return f"{folder} holds no result.json; give a run folder, of a run that has ended"
    progress = read_progress(folder)
    done = f"{progress.finished} of {progress.rounds} rounds are done"
    if progress.state == "running":
        return f"the run in {folder} is at work, {done}: wait for its end, `fedgt watch {folder}` shows how far it is"
    how = (
        f"`fedgt run {folder / 'spec.toml'} --out {folder} --resume`"
        if (folder / "spec.toml").exists()
        else f"start the same FederationRun with folder={str(folder)!r} and resume=True"
    )
    return f"the run in {folder} was interrupted, {done}, and a report is made of a run that has ended. To go on: {how}"


def _kept(folder: Path) -> KeptEvidence | None:
    """The report is about the result; without this it says that the decision was not made again."""
    try:
        return read_kept(folder)
    except SpecError:
        return None


def _setup(folder: Path) -> Setup | None:
    path = folder / "spec.toml"
    if path.exists():
        spec = read_spec(path)
        return Setup(
            file=path.name,
            text=_harmless(read_text(path, "specification")),
            digest=spec.digest,
            screen=spec.screen,
            decode=spec.decode,
            rounds=spec.federation.rounds,
            data=spec.data.name,
        )
    path = folder / "settings.toml"
    if not path.exists():
        return None
    text = read_text(path, "settings")
    try:
        settings = tomllib.loads(text)
        return Setup(
            file=path.name,
            text=_harmless(text),
            digest=digest_of(settings),
            screen=ScreenSettings(**settings["screen"]),
            decode=DecodeSettings(**settings["decode"]),
            rounds=int(settings["rounds"]),
            data=None,
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise SpecError(f"{path}: not the settings of a run: {error}") from error


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


def _checked(path: Path, result: Any) -> dict[str, Any]:
    """The result with every field that a record has."""
    if isinstance(result, dict) and result.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise SpecError(
            f"{path}: schema_version {result['schema_version']!r}, this version of fedgt reads {SCHEMA_VERSION}; "
            "take the version that wrote it"
        )
    try:
        checked = RunResult.model_validate(result).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        raise SpecError(f"{path}: {key}: {first['msg']}; is this a result.json of fedgt?") from error
    ids = [client["id"] for client in checked["clients"]]
    if len(set(ids)) != len(ids):
        raise SpecError(f"{path}: clients: an id stands there twice; ids must be unique")
    test = checked["test"]
    if test is None:
        return checked
    groups = len(test["groups"])
    if len(test["outcomes"]) != (0 if test["kind"] == "graded" else groups) or set(test["outcomes"]) - set("01?"):
        raise SpecError(f"{path}: test.outcomes: one of 0, 1, ? for each of the {groups} groups is needed")
    if any(not 0 <= group < groups for client in checked["clients"] for group in client["groups"]):
        raise SpecError(f"{path}: clients.groups: groups are numbered 0 to {groups - 1}")
    return checked
