"""`local/fedgt.toml` in the workspace of a machine: what runs there, and who a site is. No job can say it."""

import importlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.logging.constants import is_log_streaming_allowed

from fedgt.engine.site_setup import SITE_FILES
from fedgt.errors import SpecError

FILE_NAME = "fedgt.toml"
_GUIDE = "docs/howto/nvflare.md has an example"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """What a machine says about itself.

    Attributes:
        client: The name of the site in the federation; FLARE's own unless the file gives another.
        program: `package.module:function`: trains at a site, runs the rounds at the server.
        files: Those of `SITE_FILES` that are named; the others are None.
        settings: The table `[settings]`, for the program.
    """

    client: str
    program: str
    files: Mapping[str, Path | None]
    settings: Mapping[str, Any]


def read_local_file(context: FLContext, program: str) -> LocalFile:
    """What the file of this machine says.

    Args:
        context: FLARE's, of the running job.
        program: What the program is called: "train" at a site, "main" at the server.

    Raises:
        SpecError: If the file is missing or malformed; or if this is a site, and FLARE sends its log to the server.
    """
    if program == "train" and is_log_streaming_allowed(context):
        raise SpecError(
            "NVIDIA FLARE sends the error log of this site to the server, and what training says may be data: set "
            '"allow_log_streaming": false in its local/resources.json'
        )
    path = Path(context.get_engine().get_workspace().get_site_config_dir()) / FILE_NAME
    return parsed(path, program, name=str(context.get_identity_name()))


def parsed(path: Path, program: str, *, name: str) -> LocalFile:
    """Read such a file.

    Raises:
        SpecError: If it is missing or malformed.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(f"{path} is missing: it says what runs here and who this site is ({_GUIDE})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path} cannot be read: {error}") from error
    settings = found.pop("settings", {})
    if not isinstance(settings, dict):
        raise SpecError(f"{path}: settings is a {type(settings).__name__}, a table [settings] is needed")
    known = ("client", "main", "train", *SITE_FILES)
    for key, value in found.items():
        if key not in known or not isinstance(value, str) or not value:
            raise SpecError(f"{path}: {key} = {value!r} is not one of the texts {', '.join(known)} ({_GUIDE})")
    if program not in found:
        raise SpecError(f'{path} does not say what runs here: {program} = "package.module:function" ({_GUIDE})')
    client = found.get("client", name)
    return LocalFile(
        client=client,
        program=found[program],
        files={
            what: path.parent / found[what].replace("{client}", client) if what in found else None
            for what in SITE_FILES
        },
        settings=settings,
    )


def program_at(place: str) -> Callable[..., Any]:
    """The function at `package.module:function`.

    Raises:
        SpecError: If there is none.
    """
    module, _, name = place.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SpecError(f"there is no program {place!r} on this machine: {error}") from error
    if not callable(found):
        raise SpecError(f"{place!r} is a {type(found).__name__}, a function is needed")
    return found
