"""A simulated federation: every client's data in one process, trained together behind one `Client` each.

The first client that is asked to train for a round trains the whole active cohort in one batched call; the others take
their slice. Who asks first, from which thread, and who else takes part change nothing: each client's shuffles are
keyed by (seed, round, client id).
"""

import hashlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

import numpy as np
import numpy.typing as npt

from fedgt.engine.endpoint import Client, TrainedModel
from fedgt.engine.round_message import fingerprint
from fedgt.errors import ShapeError, SpecError
from fedgt.train.behaviour import Behaviour
from fedgt.train.data import read_only
from fedgt.train.logistic import LocalTraining
from fedgt.train.model import Model
from fedgt.types import IntArray, Parameters, frozen

_MISLED = 1  # a stream of randomness of its own
_NONE: Mapping[str, Behaviour] = MappingProxyType({})


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedClient:
    """One client of a cohort; implements `fedgt.engine.endpoint.Client`."""

    cohort: "Cohort"
    client: str

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        """Train on the client's own samples from these parameters; see `Cohort.trained`."""
        return self.cohort.trained(self.client, parameters, round=round)


@final
class Cohort:
    """All clients of a simulated federation and the data they hold. Safe to use from several threads.

    The arguments but for the seed can be read as attributes.

    Args:
        model: The shapes of the model, and how it is trained.
        images: float32[samples, features] (uint8 for an image network), shared by all clients; not copied if read-only.
        labels: int64[samples], as the clients' own tables have them.
        parts: Client id -> int64[samples of the client], the sample numbers it holds.
        training: Learning rate, batch size and epochs, the same for all.
        seed: Keys the order of the samples, together with the round and the client id.
        behaviours: Client id -> what it does otherwise than honest training; nobody else has one.

    Raises:
        SpecError: If there is no client, a behaviour is of nobody, or the seed is negative.
        ShapeError: If a client holds no sample, or a sample number, a label or an array does not fit.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import Cohort, LocalTraining, LogisticRegression, load
        >>> digits = load("digits")
        >>> cohort = Cohort(
        ...     model=LogisticRegression(classes=10, features=64),
        ...     images=digits.train_images,
        ...     labels=digits.train_labels,
        ...     parts={"ada": np.arange(100), "bob": np.arange(100, 200)},
        ...     training=LocalTraining(),
        ...     seed=0,
        ... )
        >>> sorted(cohort.parts)
        ['ada', 'bob']
    """

    def __init__(
        self,
        *,
        model: Model,
        images: npt.NDArray[Any],
        labels: IntArray,
        parts: Mapping[str, IntArray],
        training: LocalTraining,
        seed: int,
        behaviours: Mapping[str, Behaviour] = _NONE,
    ) -> None:
        """Take the data; nothing is trained yet."""
        if not parts or seed < 0:
            raise SpecError(f"{len(parts)} clients with seed {seed}: at least one client and a seed >= 0 are needed")
        self.model = model
        self.images = read_only(images, images.dtype)
        self.labels = frozen(labels, np.int64)
        self.parts = MappingProxyType({client: frozen(part, np.int64) for client, part in parts.items()})
        for client, part in self.parts.items():
            if not part.size or not 0 <= int(part.min()) <= int(part.max()) < len(images):
                raise ShapeError(
                    f"client {client!r} holds {part.size} sample numbers; at least one, "
                    f"all from 0 to {len(images) - 1}, is needed"
                )
        self.training = training
        self.behaviours = MappingProxyType(dict(behaviours))
        for client, behaviour in self.behaviours.items():
            self._known(client)
            for name, own in (("images", behaviour.images), ("labels", behaviour.labels)):
                if own is not None and len(own) != self.parts[client].size:
                    raise ShapeError(
                        f"{len(own)} {name} of client {client!r}, which holds {self.parts[client].size} samples"
                    )
        self._seed = seed
        self._otherwise: tuple[frozenset[str], npt.NDArray[Any], IntArray] = (
            frozenset(),
            self.images,
            self.labels,
        )
        self._first: dict[str, TrainedModel] = {}
        self._lock = threading.Lock()
        self._active: dict[int, frozenset[str]] = {}
        self._trained: dict[tuple[int, bytes], dict[str, TrainedModel]] = {}
        self._sent: dict[tuple[int, bytes, str], TrainedModel] = {}
        self._clients = {client: SimulatedClient(cohort=self, client=client) for client in self.parts}

    @property
    def clients(self) -> Mapping[str, Client]:
        """Client id -> client, in the order of the parts."""
        return MappingProxyType(self._clients)

    def expect(self, clients: Collection[str], *, round: int) -> None:
        """Say who will train in this round, so that nobody else is trained for nothing.

        A hint: a client that was not named still trains when asked, with the same result. Without the hint all
        clients are trained at the first request of a round.

        Raises:
            SpecError: If a client is unknown.
        """
        for client in clients:
            self._known(client)
        with self._lock:
            self._active = {round: frozenset(clients)}

    def data(self, round: int) -> tuple[npt.NDArray[Any], IntArray]:
        """The images and labels of all samples as the clients train on them in this round."""
        active = frozenset(
            client for client, one in self.behaviours.items() if one.trains_otherwise and one.active(round)
        )
        if self._otherwise[0] != active:
            images, labels = self.images, np.array(self.labels)
            for client in active:
                one, part = self.behaviours[client], self.parts[client]
                if one.labels is not None:
                    labels[part] = one.labels
                if one.images is not None:
                    images = np.array(images) if images is self.images else images
                    images[part] = one.images
            images.setflags(write=False)
            self._otherwise = (active, images, frozen(labels, np.int64))
        return self._otherwise[1:]

    def trained(self, client: str, parameters: Parameters, *, round: int) -> TrainedModel:
        """The client's model after its local training of this round, and after what it makes of it.

        Args:
            client: Which client.
            parameters: Where it starts.
            round: From 0 or 1, as the caller counts; it keys the order of the samples.

        Returns:
            Read-only float32 parameters and the client's number of samples. Training that diverges gives NaN.

        Raises:
            SpecError: If the client is unknown or the round is negative.
            ShapeError: If a tensor does not fit the model; the message names it.
        """
        self._known(client)
        if round < 0:
            raise SpecError(f"round {round}: rounds are not negative")
        self.model.check(parameters)
        key = (round, fingerprint(parameters))
        with self._lock:  # held while training: everybody else of the round waits for this very result
            results = self._results(key)
            if client not in results:
                expected = self._active.get(round, frozenset(self.parts))
                wanted = [one for one in self.parts if one not in results and (one in expected or one == client)]
                results.update(self._train(wanted, parameters, round=round))
            behaviour = self.behaviours.get(client)
            if behaviour is None or not behaviour.active(round):
                return results[client]
            sent = (*key, client)
            if sent not in self._sent:
                self._sent[sent] = self._misled(client, behaviour, parameters, results, round=round)
            return self._sent[sent]

    def give(self, client: str, parameters: Parameters, trained: Parameters, *, round: int) -> None:
        """Hand in what was trained elsewhere, from these parameters on this client's samples and labels of this round.

        Raises:
            SpecError: If the client is unknown.
        """
        self._known(client)
        with self._lock:
            self._results((round, fingerprint(parameters)))[client] = self._model_of(client, trained)

    def shuffler(self, client: str, *, round: int) -> np.random.Generator:
        """The source of the order of the client's samples in this round."""
        return np.random.default_rng([self._seed, round, _client_key(client)])

    def _results(self, key: tuple[int, bytes]) -> dict[str, TrainedModel]:
        """What was trained from this model in this round; one round's models are kept, not the history."""
        if any(earlier != key[0] for earlier, _ in self._trained):
            self._trained, self._sent = {}, {}
        return self._trained.setdefault(key, {})

    def _misled(
        self,
        client: str,
        behaviour: Behaviour,
        start: Parameters,
        results: Mapping[str, TrainedModel],
        *,
        round: int,
    ) -> TrainedModel:
        """What a client that misbehaves in this round sends."""
        if behaviour.stale:
            return self._first.setdefault(client, results[client])
        misled = {one for one, other in self.behaviours.items() if other.active(round)}
        own_updates = {one for one in misled if self.behaviours[one].update is not None}
        known = set(results) - misled if behaviour.knowledge == "everybody" else own_updates & set(results)
        model = behaviour.sent(
            start,
            results[client].parameters,
            [results[one].parameters for one in self.parts if one in known],
            rng=np.random.default_rng([self._seed, round, _client_key(client), _MISLED]),
            part=behaviour.part(round),
            honest=self._honestly(client, behaviour, start, round=round),
        )
        return self._model_of(client, model)

    def _honestly(self, client: str, behaviour: Behaviour, start: Parameters, *, round: int) -> Parameters | None:
        """What honest training would give, where the client trains otherwise and sends a part of both."""
        if behaviour.part(round) >= 1.0 or not behaviour.trains_otherwise:
            return None
        (trained,) = self.model.train_clients(
            start,
            images=self.images,
            labels=self.labels,
            parts=[self.parts[client]],
            rngs=[self.shuffler(client, round=round)],
            training=self.training,
        )
        return trained

    def _train(self, clients: Collection[str], parameters: Parameters, *, round: int) -> dict[str, TrainedModel]:
        images, labels = self.data(round)
        models = self.model.train_clients(
            parameters,
            images=images,
            labels=labels,
            parts=[self.parts[client] for client in clients],
            rngs=[self.shuffler(client, round=round) for client in clients],
            training=self.training,
        )
        return {client: self._model_of(client, trained) for client, trained in zip(clients, models, strict=True)}

    def _model_of(self, client: str, trained: Parameters) -> TrainedModel:
        return TrainedModel(
            parameters={name: read_only(tensor, tensor.dtype) for name, tensor in trained.items()},
            samples=self.parts[client].size,
        )

    def _known(self, client: str) -> None:
        if client not in self.parts:
            raise SpecError(f"unknown client {client!r}; the cohort has {', '.join(self.parts)}")


def _client_key(client: str) -> int:
    """The same number for the same id in every process, whoever else is registered and in whatever order."""
    return int.from_bytes(hashlib.sha256(client.encode()).digest()[:8], "big")
