"""Clients of this process behind a transport, for a run that must be able to say why all of them failed."""

from collections.abc import Collection, Mapping

from fedgt.engine import ClientEndpoint, LocalTransport
from fedgt.engine.endpoint import Client
from fedgt.engine.transport import Handler
from fedgt.errors import ClientsFailedError, FedGTError, SpecError


class LocalClients:
    """Builds the transport, and remembers what the clients raised.

    Args:
        clients: Name -> client.
        privacy: The promise: each endpoint refuses sums over fewer clients.

    Attributes:
        transport: Reaches them.

    Raises:
        SpecError: If a client cannot train.
    """

    def __init__(self, clients: Mapping[str, Client], privacy: int) -> None:
        """Give each client an endpoint."""
        for name, client in clients.items():
            if not callable(getattr(client, "train", None)):
                raise SpecError(
                    f"client {name!r} is a {type(client).__name__} without a method train(parameters, *, round) that "
                    "returns a TrainedModel"
                )
        self._raised: dict[str, Exception] = {}
        self._endpoints = {
            name: ClientEndpoint(name, client, minimum_group_size=privacy) for name, client in clients.items()
        }
        self.transport = LocalTransport({name: self._handler(name) for name in clients})

    def require_some(self, members: Collection[str], round: int) -> None:
        """Refuse to call it a round when all clients failed, and all of them alike.

        Raises:
            ClientsFailedError: With the first error as its cause.
        """
        raised = {name: self._raised.pop(name) for name in members if name in self._raised}
        alike = {(type(error), str(error).replace(name, "")) for name, error in raised.items()}
        if raised and len(raised) == len(members) and len(alike) == 1:
            name, first = next(iter(raised.items()))
            raise ClientsFailedError(
                f"round {round}: all {len(members)} clients failed alike; {name}: {type(first).__name__}: {first}"
            ) from first

    def _handler(self, name: str) -> Handler:
        def handle(stage: str, payload: bytes) -> bytes:
            try:
                return self._endpoints[name].handle(stage, payload)
            except FedGTError as error:
                self._raised.setdefault(name, error)
                raise
            except Exception as error:
                self._raised.setdefault(name, error)
                # What foreign code says may be data: its kind goes on record, and all of it is raised if all fail alike.
                raise FedGTError(f"its training failed with {type(error).__name__}") from error

        return handle
