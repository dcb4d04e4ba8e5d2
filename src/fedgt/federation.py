"""What a round needs to know: who takes part, how their sums are taken, how groups are tested and suspects named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fedgt.decode import ESTIMATORS, METHODS, STRATEGIES, Estimator, Method, Strategy
from fedgt.engine import Transport
from fedgt.errors import SpecError
from fedgt.exclude import ON_UNDECIDABLE, ON_UNTESTED, OnUndecidable, OnUntested
from fedgt.privacy import Ledger
from fedgt.screen import Utility, check_settings
from fedgt.secagg import Credentials
from fedgt.types import ErrorRates, IntArray, Parameters

Weighting = Literal["samples", "equal"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)

AfterTest = Literal["next-round", "same-round"]
AFTER_TEST: tuple[AfterTest, ...] = get_args(AfterTest)
"""What becomes of the local models of a test round. `next-round` (default): they are used for the test only, the global
model comes from what is already revealed, and the kept clients train again. `same-round`: the paper's behaviour, one more
sum of the same local models, over the kept clients; the ledger refuses it below the promised r."""


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
        clip: Entries of an update are clipped to [-clip, clip], and counted.
        fraction_bits: The fixed-point step is 2^-fraction_bits.
        timeout: Seconds per stage until a silent client counts as dropped.
        credentials: The server's identity and the clients' keys; None is anonymous mode, for simulations.

    Raises:
        SpecError: If the weighting is unknown.
    """

    run: str
    transport: Transport
    ledger: Ledger
    samples: Mapping[str, int]
    weighting: Weighting = "samples"
    clip: float = 8.0
    fraction_bits: int = 24
    timeout: float = 60.0
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        """Check."""
        if self.weighting not in WEIGHTINGS:
            raise SpecError(f"unknown weighting {self.weighting!r}; known are {', '.join(WEIGHTINGS)}")

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
        predict: Parameters -> int64[samples], the predicted labels.
        labels: int64[samples], the true labels.
    """

    predict: Callable[[Parameters], IntArray]
    labels: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSettings:
    """How groups are tested: the paper's screen (section III.C and V.A).

    Attributes:
        utility: What is measured on the validation set.
        source_label: The label under attack, if the user knows it; needed by `recall`, and then also the row of the
            classification layer that is looked at. None looks at the whole layer.
        layer: The tensor that is the classification layer, [classes, inputs].
        silhouette_threshold: s^thres; the paper has 0.6, and 0 for heterogeneous clients.
        restarts: Starting positions of k-means.
        seed: Seeds them.
    """

    utility: Utility = Utility.BALANCED_ACCURACY
    source_label: int | None = None
    layer: str = "weight"
    silhouette_threshold: float = 0.6
    restarts: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what can be checked before a sum is opened."""
        check_settings(
            max_clusters=2,
            silhouette_threshold=self.silhouette_threshold,
            restarts=self.restarts,
            seed=self.seed,
        )
        if self.utility.needs_source_label and self.source_label is None:
            raise SpecError("utility 'recall' needs the source label, or take 'top1' or 'balanced-accuracy'")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """How suspects are named (section IV) and what follows.

    Attributes:
        strategy: See `fedgt.decode.strategies`.
        estimator: n_m-hat from the number of negative groups, or from all outcomes.
        method: Of the decoder: `exact`, `belief-propagation` or `auto`.
        rates: What is assumed about the tests; the paper has p = 0.05 both ways.
        beta: Weight of a misdetection against a false alarm.
        kappa: Defines n_m^max.
        largest: n_m^max itself, when the user knows it.
        on_undecidable: The policy when nobody can be cleared.
        on_untested: The policy for clients without a tested group.
        after_test: What becomes of the local models of the test round.
        below_promise: The user accepts, by name, that `same-round` breaks the promised r.
    """

    strategy: Strategy = "bayes"
    estimator: Estimator = "negatives"
    method: Method = "exact"
    rates: ErrorRates = field(default_factory=lambda: ErrorRates.symmetric(0.05))
    beta: float = 0.5
    kappa: float = 0.2
    largest: int | None = None
    on_undecidable: OnUndecidable = "stop"
    on_untested: OnUntested = "exclude-silent"
    after_test: AfterTest = "next-round"
    below_promise: bool = False

    def __post_init__(self) -> None:
        """Check what can be checked before a sum is opened."""
        for name, value, known in (
            ("strategy", self.strategy, STRATEGIES),
            ("estimator", self.estimator, ESTIMATORS),
            ("method", self.method, METHODS),
            ("on_undecidable", self.on_undecidable, ON_UNDECIDABLE),
            ("on_untested", self.on_untested, ON_UNTESTED),
            ("after_test", self.after_test, AFTER_TEST),
        ):
            if value not in known:
                raise SpecError(f"unknown {name} {value!r}; known are {', '.join(known)}")
        for name, number in (("beta", self.beta), ("kappa", self.kappa)):
            if not 0.0 <= number <= 1.0:
                raise SpecError(f"{name} = {number}; a number from 0 to 1 is needed")
