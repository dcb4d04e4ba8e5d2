"""FLARE sites in this process: real `FlareSite` objects behind proxies that call them, with contexts as FLARE makes them."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.collab import CollabCallError
from nvflare.collab.api import ClientApp, Context
from nvflare.collab.api.constants import FL_CONTEXT_PROP
from nvflare.collab.api.context import set_call_context

from fedgt.nvflare import FlareSite

Exchange = Callable[[str, bytes], Any]


def workspace(folder: Path, local: str = 'train = "flare_app:train"\n', *, streaming: bool = False) -> Path:
    """The workspace of a machine, with its `local/fedgt.toml`."""
    for name in ("local", "startup"):
        (folder / name).mkdir(parents=True)
    (folder / "local" / "fedgt.toml").write_text(local)
    (folder / "local" / "resources.json").write_text(f'{{"allow_log_streaming": {str(streaming).lower()}}}')
    return folder


def machine(name: str, folder: Path) -> FLContext:
    """The context of FLARE at a machine."""
    context = FLContext()
    here = SimpleNamespace(get_site_config_dir=lambda: str(folder / "local"))
    for key, value in {
        ReservedKey.IDENTITY_NAME: name,
        ReservedKey.ENGINE: SimpleNamespace(get_workspace=lambda: here),
        FLContextKey.WORKSPACE_ROOT: str(folder),
    }.items():
        context.set_prop(key, value, private=True, sticky=False)
    return context


def called(site: FlareSite, name: str, folder: Path, *, caller: str = "server") -> Exchange:
    """What a call of the published function does at a site."""
    app = ClientApp(site)
    app.name = name
    app.set_prop(FL_CONTEXT_PROP, machine(name, folder))

    def exchange(stage: str, frame: bytes) -> Any:
        context = Context(app, caller, name, Signal())
        set_call_context(context)
        return site.exchange(stage, frame, context=context)

    return exchange


class Proxy:
    """A client's proxy at the server. Like FLARE's, every failure of a call is a `CollabCallError`."""

    def __init__(self, name: str, exchange: Exchange) -> None:
        self.name = name
        self._exchange = exchange

    def __call__(self, *, timeout: float) -> Any:
        return SimpleNamespace(exchange=lambda stage, frame: self._call(stage, frame, timeout))

    def _call(self, stage: str, frame: bytes, timeout: float) -> Any:
        found: list[Any] = []

        def run() -> None:
            try:
                found.append(self._exchange(stage, frame))
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(timeout)
        if not found:
            raise CollabCallError(self.name, "exchange", TimeoutError(f"timed out after {timeout} seconds"))
        if isinstance(found[0], Exception):
            raise CollabCallError(self.name, "exchange", str(found[0]), cause_type=type(found[0]).__name__)
        return found[0]


def proxies(folder: Path, config: Mapping[str, Any], local: str = 'train = "flare_app:train"\n') -> list[Proxy]:
    """`client-0`, `client-1`, ... as a job with this configuration has them."""
    names = [f"client-{number}" for number in range(int(config["clients"]))]
    folders = {name: workspace(folder / name, local) for name in names}
    return [Proxy(name, called(FlareSite(dict(config)), name, folders[name])) for name in names]
