"""Carries the engine's stages as calls of FLARE's Collab API: one call per client and stage, all at once."""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Protocol

from nvflare.collab import CollabCallError

from fedgt.engine import Failure, PrekeyStore
from fedgt.engine.roster import Roster
from fedgt.engine.transport import StreamingTransport
from fedgt.foreign_text import plain
from fedgt.nvflare.flare_site import FRAME, REFUSED
from fedgt.secagg import Credentials


class Callee(Protocol):
    """What is used of a client's `nvflare.collab` proxy: its name, and calls with a timeout."""

    name: str

    def __call__(self, *, timeout: float) -> Any:
        """The same proxy, whose calls end after so many seconds."""
        ...


class FlareTransport(StreamingTransport):
    """A `fedgt.engine.StreamingTransport` and `MeetingTransport` whose clients are sites of a FLARE job.

    Names are the identity; the `roster` finds out by asking which site has which. Nothing that a site does raises: it
    becomes a `Failure` with the site's own reason. A job that is aborted ends the run.

    Args:
        clients: `collab.clients`, as the program of a `FlareServer` gets them.
        names: The names that may take part, those that the sites have.
        credentials: The server's identity and the clients' keys; None is ANONYMOUS MODE, where sites are believed.
        patience: Seconds for a site to say who it is; it need not train for that.

    Attributes:
        prekeys: What the clients have published for the coming round.
        roster: Which client is which site of FLARE, and why other sites take no part.

    Raises:
        SpecError: If no client is named.

    Examples:
        >>> from fedgt.nvflare import FlareTransport
        >>> transport = FlareTransport([], ["ada", "bob"])  # the program of a server gets its clients from FLARE
        >>> transport.meet()
        ()
    """

    def __init__(
        self,
        clients: Collection[Callee],
        names: Collection[str],
        *,
        credentials: Credentials | None = None,
        patience: float = 20.0,
    ) -> None:
        """Nobody is asked yet."""
        self._sites = {site.name: site for site in clients}
        self._patience = patience
        self.prekeys = PrekeyStore()
        self.roster: Roster[str] = Roster(
            names,
            lambda: self._sites,
            lambda sites, question, timeout: self._call("hello", dict.fromkeys(sites, question), timeout),
            credentials=credentials,
            prekeys=self.prekeys,
        )

    def meet(self, *, without: Collection[str] = (), wait: float = 0.0) -> tuple[str, ...]:
        """See `fedgt.engine.MeetingTransport`. All sites of a job are there when it begins, so nobody is waited for."""
        return self.roster.meet(self._patience, without=without)

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        """See `fedgt.engine.StreamingTransport`."""
        sites = {self.roster.nodes[client]: client for client in messages if client in self.roster.nodes}
        for client in messages.keys() - set(sites.values()):
            yield client, Failure(client=client, reason="no site of this client is connected")
        for site, answer in self._call(stage, {site: messages[client] for site, client in sites.items()}, timeout):
            client = sites[site]
            yield client, Failure(client=client, reason=answer) if isinstance(answer, str) else answer

    def _call(self, stage: str, frames: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | str]]:
        """Site -> the frame of its answer, or why there is none, as they come."""
        if not frames:
            return
        with ThreadPoolExecutor(len(frames), thread_name_prefix=f"fedgt-{stage}") as pool:
            calls = {pool.submit(_answer, self._sites[site], stage, frames[site], timeout): site for site in frames}
            for call in as_completed(calls):
                yield calls.pop(call), call.result()


def _answer(site: Callee, stage: str, frame: bytes, timeout: float) -> bytes | str:
    try:
        answer: object = site(timeout=timeout).exchange(stage, frame)
    except CollabCallError as error:
        if error.cause_type == TimeoutError.__name__:
            return f"timeout: no reply within {timeout:g} s"
        return plain(f"{error.cause_type} of its site: {error.cause}")
    found = answer if isinstance(answer, dict) else {}
    frame_back, refused = found.get(FRAME), found.get(REFUSED)
    if isinstance(frame_back, bytes):
        return frame_back
    return plain(refused) if isinstance(refused, str) else "its answer is neither a frame nor a refusal"
