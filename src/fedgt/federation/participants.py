"""Who takes part: the clients behind their transport, and the server with its validation set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedgt.engine import OnStage, TakesSums, Transport, secure_sums
from fedgt.errors import SpecError
from fedgt.federation.settings import WEIGHTINGS, SumSettings, Weighting
from fedgt.ids import require_distinct_ids, require_id
from fedgt.privacy import Ledger
from fedgt.secagg import AgreementLog, Credentials
from fedgt.types import IntArray, Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """Who takes part and how their sums are taken.

    Attributes:
        run: The name of the run; part of every key.
        transport: Reaches the clients.
        ledger: Asked before any sum is opened.
        samples: Client id -> number of samples, public.
        weighting: `samples` (FedAvg) or `equal`. One weighting for all sums: sums of the same local models with
            different weights are different rows for the ledger.
        sums: Clip, fixed point, timeout, and how many clients may work together with a server that lies. Thresholds, the
            quorum of signatures and the clients' own limits follow from these; the promise r still mixes r less so many
            honest clients.
        inputs: Name -> SHA-256 of what else clients train with, such as the configuration of the run. They verify it.
        credentials: The server's identity and the clients' keys; None is anonymous mode, for simulations.
        agreements: What the clients have signed so far, with credentials. Give one with a folder, so that a restarted
            server goes on; None begins a record that ends with this object.
        take_sums: How sums are taken. Anything but the protocol is for experiments in one process.
        on_stage: Told which stage of the protocol begins.

    Raises:
        SpecError: If the weighting is unknown, the run or a client has a name that cannot be an id, or two look alike.

    Examples:
        >>> from fedgt import Ledger, LocalTransport
        >>> from fedgt.federation import Federation
        >>> samples = {"ada": 100, "bob": 50}
        >>> ledger = Ledger(clients=samples, promised=2)
        >>> federation = Federation(run="example", transport=LocalTransport({}), ledger=ledger, samples=samples)
        >>> federation.weight("bob")
        50
    """

    run: str
    transport: Transport
    ledger: Ledger
    samples: Mapping[str, int]
    weighting: Weighting = "samples"
    sums: SumSettings = field(default_factory=SumSettings)
    inputs: Mapping[str, str] = field(default_factory=dict)
    credentials: Credentials | None = None
    agreements: AgreementLog | None = None
    take_sums: TakesSums = secure_sums
    on_stage: OnStage | None = None

    def __post_init__(self) -> None:
        """Check."""
        if self.weighting not in WEIGHTINGS:
            raise SpecError(f"unknown weighting {self.weighting!r}; known are {', '.join(WEIGHTINGS)}")
        require_id(self.run, "run")
        require_distinct_ids(self.samples)
        self.ledger.weigh(self.weights)
        if self.credentials is not None and self.agreements is None:
            object.__setattr__(self, "agreements", AgreementLog(self.credentials.registry))

    @property
    def weights(self) -> dict[str, int]:
        """Client -> its public weight in every sum."""
        return {client: self.weight(client) for client in self.samples}

    def weight(self, client: str) -> int:
        """The public weight of a client in every sum.

        Raises:
            SpecError: If the client is not registered.
        """
        if client not in self.samples:
            raise SpecError(f"client {client!r} is not registered: its number of samples is unknown")
        return self.samples[client] if self.weighting == "samples" else 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Validation:
    """The server's small validation set, seen through any framework's model.

    Attributes:
        logits: Parameters -> float[samples, classes], the scores (or log-probabilities) of every class.
        labels: int64[samples], the true labels.
        inputs: Parameters -> float[samples, features], what the classification layer sees of these samples: the samples
            themselves for a one-layer model. With it a client that owns other classes can be told from one that labels them
            wrongly: by `features = "margins"`, and by the second opinion on what weights have found. Without, less.

    Examples:
        >>> import numpy as np
        >>> from fedgt import Validation
        >>> images, labels = np.eye(3), np.array([0, 1, 2])
        >>> own = Validation(labels=labels, logits=lambda p: images @ p["weight"].T, inputs=lambda p: images)
        >>> own.logits({"weight": np.eye(3)}).argmax(axis=1).tolist()
        [0, 1, 2]
    """

    logits: Callable[[Parameters], npt.NDArray[np.floating]]
    labels: IntArray
    inputs: Callable[[Parameters], npt.NDArray[np.floating]] | None = None

    def predict(self, parameters: Parameters) -> IntArray:
        """int64[samples]: the class of the largest score."""
        predicted: IntArray = np.asarray(self.logits(parameters)).argmax(axis=1).astype(np.int64)
        return predicted
