"""Which address is which client, found out by asking: for transports whose addresses are not names."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from fedgt.engine.hello import hello_frame, read_answer
from fedgt.engine.prekey_store import PrekeyStore
from fedgt.errors import FedGTError, SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_distinct_ids
from fedgt.secagg import Credentials

logger = logging.getLogger(__name__)

_PATIENCE = 3  # a node that does not say who it is, is asked so many times: it must not slow down every round

Address = TypeVar("Address", int, str)

Ask: TypeAlias = Callable[[Collection[Address], bytes, float], Iterator[tuple[Address, bytes | str]]]
"""(addresses, question, timeout in seconds) -> of each address its answer, or why there is none, as they come."""


class Roster(Generic[Address]):
    """Names are the identity; addresses ("nodes") come and go. Nothing that a node does raises.

    Args:
        clients: The names that may take part.
        online: The addresses that are there now.
        ask: Carries a question to some of them.
        credentials: The server's identity and the clients' keys; None is anonymous mode, where nodes are believed.
        prekeys: Filled with what clients publish when they are asked who they are.

    Raises:
        SpecError: If no client is named, or two names look alike.
    """

    def __init__(
        self,
        clients: Collection[str],
        online: Callable[[], Iterable[Address]],
        ask: Ask[Address],
        *,
        credentials: Credentials | None,
        prekeys: PrekeyStore,
    ) -> None:
        """Nobody is asked yet."""
        if not clients:
            raise SpecError("no client is named: give the names that may take part")
        require_distinct_ids(clients)
        self._clients = frozenset(clients)
        self._look: Callable[[], Iterable[Address]] = online
        self._send: Ask[Address] = ask
        self._credentials = credentials
        self._prekeys = prekeys
        self._nodes: dict[str, Address] = {}
        self._refused: dict[Address, str] = {}
        self._online: frozenset[Address] = frozenset()
        self._silent: dict[Address, int] = {}

    @property
    def nodes(self) -> Mapping[str, Address]:
        """Client -> address, of all that are connected and recognised."""
        return MappingProxyType(self._nodes)

    @property
    def refused(self) -> Mapping[Address, str]:
        """Address -> why it takes no part."""
        return MappingProxyType(self._refused)

    def gather(self, timeout: float, *, wait: float, without: Collection[str]) -> tuple[str, ...]:
        """`meet` until everybody but some is connected, or the wait is over; a node that is busy is not given up."""
        deadline, told = time.monotonic() + wait, False
        while True:
            there = self.meet(timeout, without=without)
            missing = sorted(self._clients - set(there) - set(without))
            if not missing or not wait:
                return there
            if time.monotonic() >= deadline:
                logger.warning("not there after %g s, the round begins without: %s", wait, ", ".join(missing))
                return there
            if not told:
                logger.info("waiting for at most %g s: %s", wait, ", ".join(missing))
                told = True
            self._silent = dict.fromkeys(self._silent, 0)
            time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))

    def meet(self, timeout: float, *, without: Collection[str] = ()) -> tuple[str, ...]:
        """Ask new nodes who they are, and those whose prekeys are missing; forget nodes that are gone.

        No trip if there is nobody to ask. A name that two nodes claim belongs to the one that still answers; if both do, to
        neither.

        Args:
            timeout: Seconds to wait for the answers.
            without: Clients that need no prekeys.

        Returns:
            The clients that are connected, sorted.
        """
        online = frozenset(self._look())
        bare = set() if self._prekeys.request is None else self._clients - self._prekeys.published.keys() - set(without)
        self._nodes = {client: node for client, node in self._nodes.items() if node in online and client not in bare}
        if online != self._online:
            self._online, self._refused = online, {}  # who was refused because of another node may be right now
        known = {node: client for client, node in self._nodes.items()}
        given_up = {node for node in self._refused if self._silent.get(node, _PATIENCE) >= _PATIENCE}
        claims = self._ask(online - set(known) - given_up, timeout)
        if contested := {known[node] for node in known} & set(claims.values()):
            # The earlier node may be dead and not yet known to be: ask again.
            claims |= self._ask({node for node, client in known.items() if client in contested}, timeout)
            self._nodes = {client: node for client, node in self._nodes.items() if client not in contested}
        claimants: dict[str, list[Address]] = {}
        for node, client in sorted(claims.items()):
            claimants.setdefault(client, []).append(node)
        for client, nodes in claimants.items():
            if client not in self._clients:
                self._refuse(nodes, f"client {client!r} is not registered for this run")
            elif len(nodes) > 1:
                self._refuse(nodes, f"nodes {', '.join(map(str, nodes))} all say that they are client {client!r}")
            else:
                self._nodes[client] = nodes[0]
        return tuple(sorted(self._nodes))

    def _ask(self, nodes: Collection[Address], timeout: float) -> dict[Address, str]:
        """Node -> who it is, of all that answer well; the others are refused."""
        nonce, question = hello_frame(self._credentials, self._prekeys.request)
        claims: dict[Address, str] = {}
        for node, answer in self._send(sorted(nodes), question, timeout):
            try:
                if isinstance(answer, str):
                    self._silent[node] = self._silent.get(node, 0) + 1
                    raise FedGTError(answer)
                self._refused.pop(node, None)
                self._silent.pop(node, None)
                claims[node], prekeys = read_answer(answer, nonce=nonce, credentials=self._credentials)
                self._prekeys.published[claims[node]] = prekeys
            except FedGTError as error:
                self._refuse([node], str(error))
        return claims

    def _refuse(self, nodes: Iterable[Address], reason: str) -> None:
        for node in nodes:
            self._refused[node] = plain(reason)
            logger.warning("node %s takes no part: %s", node, self._refused[node])
