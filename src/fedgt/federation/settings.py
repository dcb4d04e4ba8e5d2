"""What a round needs to know: who takes part, how their sums are taken, how groups are tested and suspects named."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fedgt.decode import ESTIMATORS, METHODS, STRATEGIES, Estimator, Method, Strategy
from fedgt.engine import TakesSums, Transport, secure_sums
from fedgt.errors import SpecError
from fedgt.evidence import largest_scored
from fedgt.federation.verdicts import ON_UNDECIDABLE, ON_UNDECIDED, ON_UNTESTED, OnUndecidable, OnUndecided, OnUntested
from fedgt.ids import require_distinct_ids, require_id
from fedgt.privacy import Ledger
from fedgt.screen import Utility, check_settings
from fedgt.secagg import AgreementLog, Credentials
from fedgt.types import ErrorRates, IntArray, Parameters

Weighting = Literal["samples", "equal"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)

AfterTest = Literal["next-round", "negative-groups", "largest-sum", "same-round"]
AFTER_TEST: tuple[AfterTest, ...] = get_args(AfterTest)
"""What becomes of the local models of a test round. `next-round` (default): the global model is the mean of the kept clients
as well as the sums that are open already give it, without an excluded client and without a new sum. `negative-groups`: the
mean of the groups that tested negative (binary screens only). `largest-sum`: one more sum of the same local models, over as
many kept clients as the promised r allows. `same-round`: the paper's behaviour, one more sum over all kept clients; the
ledger refuses it below the promised r."""

ScreenKind = Literal["graded", "clusters", "significant-clusters"]
SCREEN_KINDS: tuple[ScreenKind, ...] = get_args(ScreenKind)
"""`graded`: by how much and along which line the groups differ. `clusters`: the paper's test, one bit a group.
`significant-clusters`: the same, all groups negative unless they differ significantly."""

Features = Literal["weights", "outputs", "margins"]
FEATURES: tuple[Features, ...] = get_args(Features)
"""What graded evidence compares. `weights`: the classification layer; the most powerful where honest clients are alike and
the layers below it are frozen or absent. `outputs`: losses and mean outputs of the classes on the validation set; where a
deep network is trained from end to end, so that honest clients' layers differ along directions that mean nothing.
`margins`: the validation set's margins of all pairs of labels, with noise scales that are learnt; where honest clients
differ by nature, as hospitals do."""

_MOST_SETS_BY_MARGINS = 300_000
"""Sets that are scored by margins, at some 60 microseconds each."""


def most_by_margins(clients: int) -> int:
    """The most malicious clients whose sets margins can score: 7 of 15, 8 of 20, 5 of 30."""
    return largest_scored(clients, most=_MOST_SETS_BY_MARGINS)


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
        colluders: How many clients may work together with a server that lies. Thresholds, the quorum of signatures and the
            clients' own limits follow from it; the promise r still mixes r less so many honest clients.
        inputs: Name -> SHA-256 of what else clients train with, such as the configuration of the run. They verify it.
        credentials: The server's identity and the clients' keys; None is anonymous mode, for simulations.
        agreements: What the clients have signed so far, with credentials. Give one with a folder, so that a restarted
            server goes on; None begins a record that ends with this object.
        take_sums: How sums are taken. Anything but the protocol is for experiments in one process.

    Raises:
        SpecError: If the weighting is unknown, the run or a client has a name that cannot be an id, or two look alike.
    """

    run: str
    transport: Transport
    ledger: Ledger
    samples: Mapping[str, int]
    weighting: Weighting = "samples"
    clip: float = 8.0
    fraction_bits: int = 24
    timeout: float = 60.0
    colluders: int = 1
    inputs: Mapping[str, str] = field(default_factory=dict)
    credentials: Credentials | None = None
    agreements: AgreementLog | None = None
    take_sums: TakesSums = secure_sums

    def __post_init__(self) -> None:
        """Check."""
        if self.weighting not in WEIGHTINGS:
            raise SpecError(f"unknown weighting {self.weighting!r}; known are {', '.join(WEIGHTINGS)}")
        require_id(self.run, "run")
        require_distinct_ids(self.samples)
        if self.credentials is not None and self.agreements is None:
            object.__setattr__(self, "agreements", AgreementLog(self.credentials.registry))

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
    """

    logits: Callable[[Parameters], npt.NDArray[np.floating]]
    labels: IntArray
    inputs: Callable[[Parameters], npt.NDArray[np.floating]] | None = None

    def predict(self, parameters: Parameters) -> IntArray:
        """int64[samples]: the class of the largest score."""
        predicted: IntArray = np.asarray(self.logits(parameters)).argmax(axis=1).astype(np.int64)
        return predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class SumSettings:
    """How sums are taken.

    Attributes:
        weighting: `samples` (FedAvg) or `equal`, for all sums of a run.
        clip: Entries of an update are clipped to [-clip, clip], and counted.
        fraction_bits: The fixed-point step is 2^-fraction_bits.
        timeout_seconds: Per stage, until a silent client counts as dropped.
        colluders: How many clients may work together with a server that lies; see `Federation`.
    """

    weighting: Weighting = "samples"
    clip: float = 8.0
    fraction_bits: int = 24
    timeout_seconds: float = 60.0
    colluders: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RfaSettings:
    """The baseline RFA.

    Attributes:
        iterations: Weiszfeld steps a round, one secure sum each.
        smoothing: nu, in the unit of the update's norm.
    """

    iterations: int = 3
    smoothing: float = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenSettings:
    """When and how groups are tested.

    Attributes:
        round: The first test round, from 1.
        most_rounds: Test rounds at most; a further one is held only while clients stay undecided.
        more_groups: Groups of a further test round at most.
        kind: Graded evidence, or the paper's screen (section III.C and V.A) with one bit a group; see `SCREEN_KINDS`.
        features: What graded evidence compares.
        utility: What is measured on the validation set; None lets the screen choose: losses for graded evidence, balanced
            accuracy for clusters. Graded evidence takes no other.
        source_label: The label under attack, if the user knows it. Graded evidence then looks at the loss of that label
            alone; clusters take `recall`, which needs it, and the row of the classification layer.
        layer: The tensor that is the classification layer, [classes, inputs].
        silhouette_threshold: s^thres; the paper has 0.6, and 0 for heterogeneous clients.
        restarts: Starting positions of k-means.
        seed: Seeds them.
    """

    round: int = 1
    most_rounds: int = 3
    more_groups: int = 4
    kind: ScreenKind = "graded"
    features: Features = "weights"
    utility: Utility | None = None
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
        for name, value, known in (("kind", self.kind, SCREEN_KINDS), ("features", self.features, FEATURES)):
            if value not in known:
                raise SpecError(f"unknown {name} {value!r}; known are {', '.join(known)}")
        if self.utility is not None:
            object.__setattr__(self, "utility", Utility.parse(self.utility))
        label = self.source_label
        if label is not None and (isinstance(label, bool) or not isinstance(label, int | np.integer) or label < 0):
            raise SpecError(f"source label {label!s}; the number of a class is needed, an integer from 0")
        if self.kind == "graded" and self.utility is not None:
            raise SpecError(
                f"utility {self.utility.value!r} belongs to the screen with one bit a group; graded evidence looks at the "
                "validation loss: leave the utility out, or take kind = 'clusters'"
            )
        if self.utility is not None and self.utility.needs_source_label and self.source_label is None:
            raise SpecError("utility 'recall' needs the source label, or take 'top1' or 'balanced-accuracy'")

    @property
    def measured(self) -> Utility:
        """The utility of the screen with one bit a group."""
        return Utility.BALANCED_ACCURACY if self.utility is None else self.utility


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """How suspects are named (section IV) and what follows.

    `strategy`, `estimator`, `method`, `rates` and `kappa` are for binary outcomes, `nobody`, `undecided` and `on_undecided`
    for graded evidence.

    Attributes:
        strategy: See `fedgt.decode.strategies`.
        estimator: n_m-hat from the number of negative groups, or from all outcomes.
        method: Of the decoder: `exact`, `belief-propagation` or `auto`.
        rates: What is assumed about the tests; the paper has p = 0.05 both ways.
        beta: Weight of a misdetection against a false alarm.
        kappa: Defines n_m^max.
        prevalence: P(malicious) of every client instead of an estimate (binary screens).
        largest: n_m^max itself, when the user knows it; for graded evidence, if not given, floor((n - 1) / 2), or as many as
            can be searched (8 of 30 clients).
        nobody: Prior probability that nobody is malicious.
        undecided: A posterior from this to one minus this is not decided.
        on_undecided: The policy for such clients.
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
    prevalence: float | None = None
    largest: int | None = None
    nobody: float = 0.5
    undecided: float = 0.02
    on_undecided: OnUndecided = "test-again"
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
            ("on_undecided", self.on_undecided, ON_UNDECIDED),
            ("after_test", self.after_test, AFTER_TEST),
        ):
            if value not in known:
                raise SpecError(f"unknown {name} {value!r}; known are {', '.join(known)}")
        for name, number in (("beta", self.beta), ("kappa", self.kappa)):
            if not 0.0 <= number <= 1.0:
                raise SpecError(f"{name} = {number}; a number from 0 to 1 is needed")
        if not 0 < self.nobody < 1:
            raise SpecError(f"nobody = {self.nobody}; a probability between 0 and 1 is needed")
        if not 0 < self.undecided <= 0.5:
            raise SpecError(f"undecided = {self.undecided}; a probability above 0 and up to 0.5 is needed")

    def largest_graded(self, clients: int, features: Features = "weights") -> int:
        """The most malicious clients that graded evidence considers: a minority that can be searched, and one at least.

        Raises:
            SpecError: If a larger number was asked for than can be searched.
        """
        searched = most_by_margins(clients) if features == "margins" else largest_scored(clients)
        if self.largest is None:
            return max(1, min((clients - 1) // 2, searched))
        if self.largest > searched:
            raise SpecError(
                f"at most {self.largest} malicious clients of {clients} are more sets than can be scored one by one; at "
                f"most {searched} can be searched: lower decode.max_malicious"
            )
        return max(1, self.largest)
