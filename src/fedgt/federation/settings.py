"""The options of a run, defined once: the specification, the library and the command line take them from here."""

from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from fedgt.decode import Estimator, Method, Strategy
from fedgt.defaults import (
    BETA,
    CLIP,
    COLLUDERS,
    ERROR_RATE,
    ESTIMATOR,
    FRACTION_BITS,
    KAPPA,
    METHOD,
    NO_LIMIT,
    NOBODY,
    SILHOUETTE_THRESHOLD,
    UNDECIDED,
)
from fedgt.errors import SpecError
from fedgt.evidence import largest_scored
from fedgt.options import Options
from fedgt.screen import Utility
from fedgt.types import ErrorRates

Weighting = Literal["samples", "equal"]
WEIGHTINGS: tuple[Weighting, ...] = get_args(Weighting)

ScreenKind = Literal["graded", "clusters", "significant-clusters"]
"""`graded`: by how much and along which line the groups differ. `clusters`: the paper's test, one bit a group.
`significant-clusters`: the same, all groups negative unless they differ significantly."""

Features = Literal["auto", "weights", "outputs", "margins"]
"""What graded evidence compares. `auto` (default): weights where clients own the classes as evenly as one population gives
them, margins where they do not; the first test decides it for those after it. `weights`: the classification layer; the most
powerful where honest clients are alike and the layers below it are frozen or absent. `outputs`: losses and mean outputs of
the classes on the validation set; where a deep network is trained from end to end, so that honest clients' layers differ
along directions that mean nothing. `margins`: the validation set's margins of all pairs of labels, with noise scales that
are learnt; where honest clients differ by nature, as hospitals do."""

OnUndecidable = Literal["stop", "keep-all", "follow-decoder"]
"""What to do when nobody can be cleared (all groups positive, all tested clients flagged, no group tested, or outcomes that
contradict each other): stop the run (default), go on with everybody, or do what the decoder says, as the paper's pipeline
would."""

OnUntested = Literal["keep", "exclude-silent", "exclude"]
"""What becomes of a client without a tested group. Falling silent in the test round must not be a way around the test, so
the default leaves out those who were absent or dropped out themselves; those whose groups were lost through others stay.
Whoever may have spoilt all of its groups does not train until a test hears it, unless they are kept."""

OnSilent = Literal["report", "exclude"]
"""What becomes of a client that leaves the secure sums at the same stage again and again, by itself: it is reported by name
and stage (default), or left out."""

OnUndecided = Literal["test-again", "decide", "keep"]
"""What becomes of clients that graded evidence cannot decide: another test round with further rows while privacy and the
budget allow one (default), the decision of minimum expected cost at once, or they are kept."""

OnSuspicious = Literal["keep", "exclude", "stop"]
"""What becomes of clients that stand out as attackers do, while no loss rises with them or the second opinion acquits them.
A backdoor whose trigger is not in the validation set looks like that, and so does a hospital with a camera of its own. They
are kept and named (default), left out, or the run stops so that a person can look."""

AfterTest = Literal["next-round", "negative-groups", "largest-sum", "same-round"]
"""What becomes of the local models of a test round. `next-round` (default): the global model is the mean of the kept clients
as well as the sums that are open already give it, without an excluded client and without a new sum. `negative-groups`: the
mean of the groups that tested negative (binary screens only). `largest-sum`: one more sum of the same local models, over as
many kept clients as the promised r allows. `same-round`: the paper's behaviour, one more sum over all kept clients; the
ledger refuses it below the promised r."""

Schedule = Literal["auto", "first", "every-round", "on-suspicion"]
"""When groups are tested. `first`: once, and again only while clients stay undecided. `every-round`: in every round, over
the same sums; the global model is made after the verdict, without whoever is named. `on-suspicion`: the same, but a round
begins with a few of these sums, and the others are opened only if something is not as it was in the rounds before."""

EVERY_MINORITY, MOST_BY_DEFAULT = 21, 8
"""Up to so many clients every minority may be malicious, and all sets are scored, a million at most. Of more clients so many
may be, if nobody says otherwise and they explain what is seen: large sets explain by chance what honest clients differ by
(decisions 0044 and 0046)."""

MOST_SETS_BY_MARGINS = 300_000
"""Sets that are scored by margins, at some 60 microseconds each."""


class SumSettings(Options):
    """Fixed point and transport.

    Examples:
        >>> from fedgt import SumSettings
        >>> SumSettings(clip=4.0, colluders=2).largest_share  # what is not given keeps its default
        1.0
    """

    clip: float = Field(CLIP, gt=0, description="Entries of an update are clipped to +-clip, and counted.")
    fraction_bits: int = Field(FRACTION_BITS, ge=1, le=52, description="The step is 2^-fraction_bits.")
    timeout_seconds: float = Field(60.0, gt=0, le=86_400, description="Per stage.")
    colluders: int = Field(
        COLLUDERS, ge=0, description="Clients that may help a server which lies; thresholds follow from it."
    )
    largest_share: float = Field(
        NO_LIMIT,
        gt=0,
        le=1,
        description="No set of local models may be opened so far that the sums explain more of what is particular to a "
        "client, also with the colluders' help; 1 is no limit; see docs/disclosed-share.md.",
    )


class RfaSettings(Options):
    """The baseline RFA.

    Examples:
        >>> from fedgt.federation import RfaSettings
        >>> RfaSettings(iterations=3).smoothing
        1e-06
    """

    iterations: int = Field(3, ge=1, description="Weiszfeld steps a round, one secure sum each.")
    smoothing: float = Field(1e-6, gt=0, description="nu, in the unit of the update's norm.")


class ScreenSettings(Options):
    """The group test.

    Examples:
        >>> from fedgt import ScreenSettings
        >>> ScreenSettings(features="margins", round=5).kind  # clients that differ by nature, tested in round 5
        'graded'
    """

    kind: ScreenKind = Field(
        "graded",
        description="Graded evidence; or the paper's clusters, one bit a group; or those where groups differ significantly.",
    )
    schedule: Schedule = Field(
        "auto",
        description="When groups are tested. `first`: in `round`, and again while clients stay undecided. `every-round`: "
        "always, before the global model is made, so that later attackers are found, too. `on-suspicion`: the same, with "
        "few sums in a round that is like those before it. `auto`: `on-suspicion` wherever that is possible, else `first`; "
        "see docs/standing-tests.md.",
    )
    unannounced: float = Field(
        0.05,
        ge=0,
        le=1,
        description="With tests on suspicion: the probability that a round is a test although nothing in it is suspicious, "
        "by a lot that no client knows. Raise it where attackers may know what is looked at; such a test opens all sums.",
    )
    false_exclusions: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="With a test in every round, or on suspicion: the probability that honest clients are left out over a "
        "whole run in which nobody attacks, if the assumptions of the evidence hold.",
    )
    roll_back: bool = Field(
        False,
        description="With tests on suspicion: where a test leaves somebody out, the run goes on from the model of the last "
        "test that left nothing open. What the attackers have done in between is undone, and so is all other training.",
    )
    readmit_after: int = Field(
        0,
        ge=0,
        description="With a test in every round, or on suspicion: after so many tests in a row that would have named a "
        "client and did not, whoever a test has left out comes back, once. 0 lets nobody back; 1 is refused, because one "
        "test is too little. See docs/standing-tests.md.",
    )
    round: int = Field(1, ge=1, description="The round in which groups are tested, from 1.")
    most_rounds: int = Field(
        3,
        ge=1,
        description="Test rounds at most; a further one only while clients stay undecided. With a test in every round, "
        "or on suspicion, 1 asks for no other groups after a fault.",
    )
    more_groups: int = Field(4, ge=3, description="Groups of a further test round at most.")
    features: Features = Field(
        "auto",
        description="What graded evidence compares. `auto`: `weights` where clients own the classes evenly, else `margins`. "
        "`weights`: the classification layer. `outputs`: where a deep network is trained from end to "
        "end, the losses and mean outputs of the classes on the validation set. `margins`: the "
        "margins of all pairs of labels; see docs/graded-evidence.md and docs/heterogeneity.md.",
    )
    utility: Literal["auto"] | Utility = Field(
        "auto",
        description="What is measured on the validation set. `auto`: the loss of every class for graded evidence, balanced "
        "accuracy for clusters; `recall` needs `source_label`.",
    )
    source_label: int | None = Field(
        None, ge=0, description="The label that the user believes to be under attack; the paper's informed choice."
    )
    layer: str = Field("weight", description="The tensor that is the classification layer.")
    silhouette_threshold: float = Field(
        SILHOUETTE_THRESHOLD,
        ge=-1,
        le=1,
        description="Below it the groups form one cluster; the paper has 0 for heterogeneous clients.",
    )
    restarts: int = Field(10, ge=1, description="Starting positions of k-means.")

    @model_validator(mode="after")
    def _fits(self) -> "ScreenSettings":
        if self.kind == "graded" and self.utility != "auto":
            raise ValueError(
                f"screen.utility = {self.utility!r} is not for graded evidence, which looks at the validation loss: leave "
                "it out, or set screen.kind = 'clusters' for one bit a group"
            )
        many = self.schedule in ("every-round", "on-suspicion")
        if many and self.kind != "graded":
            raise ValueError(
                f"screen.schedule = {self.schedule!r} needs graded evidence, and screen.kind = {self.kind!r}: take "
                "screen.kind = 'graded', or screen.schedule = 'first'"
            )
        if many and self.round != 1:
            raise ValueError(
                f"screen.schedule = {self.schedule!r} begins in round 1, and screen.round = {self.round}: leave "
                "screen.round out"
            )
        if self.roll_back and self.schedule not in ("auto", "on-suspicion"):
            raise ValueError(
                f"screen.roll_back is for screen.schedule = 'on-suspicion', and the schedule is {self.schedule!r}: with it "
                "the rounds between two tests may hold poison"
            )
        if self.readmit_after and self.schedule == "first":
            raise ValueError(
                f"screen.readmit_after = {self.readmit_after} needs tests that could clear a client, and with "
                "screen.schedule = 'first' none follows: take 'every-round' or 'on-suspicion', or leave it out"
            )
        if self.readmit_after == 1:
            raise ValueError(
                "screen.readmit_after = 1: one test is too little to let a client back; take 2 or more, or 0"
            )
        if self.utility == "recall" and self.source_label is None:
            raise ValueError(
                "screen.utility = 'recall' needs screen.source_label, or take 'top1' or 'balanced-accuracy'"
            )
        return self

    @property
    def measured(self) -> Utility:
        """The utility of the screen with one bit a group."""
        return "balanced-accuracy" if self.utility == "auto" else self.utility


class DecodeSettings(Options):
    """How suspects are named and what follows.

    Examples:
        >>> from fedgt import DecodeSettings
        >>> careful = DecodeSettings(beta=0.2)  # an honest client lost costs four times an attacker missed
        >>> careful.on_undecided, careful.on_untested
        ('test-again', 'exclude-silent')
    """

    strategy: Literal["auto"] | Strategy = Field(
        "auto",
        description="For clusters; `auto` is `bayes`. Graded evidence is decided at minimum expected cost (`auto`).",
    )
    nobody: float = Field(
        NOBODY, gt=0, lt=1, description="Graded evidence: prior probability that nobody is malicious."
    )
    undecided: float = Field(
        UNDECIDED, gt=0, le=0.5, description="Graded evidence: posteriors from this to one minus this are not decided."
    )
    on_undecided: OnUndecided = Field(
        "test-again", description="Graded evidence: what becomes of undecided clients; see docs/graded-evidence.md."
    )
    on_suspicious: OnSuspicious = Field(
        "keep",
        description="Graded evidence: what becomes of clients that stand out, but do no harm that shows; see "
        "docs/graded-evidence.md.",
    )
    estimator: Estimator = Field(
        ESTIMATOR, description="n_m-hat from the number of negative groups (the paper's), or from all outcomes."
    )
    method: Method = Field(METHOD, description="Of the decoder; `auto` may fall back to belief propagation.")
    false_alarm: float = Field(
        ERROR_RATE, ge=0, le=1, description="Assumed probability that a clean group tests positive."
    )
    misdetection: float = Field(
        ERROR_RATE, ge=0, le=1, description="Assumed probability that a contaminated group tests negative."
    )
    beta: float = Field(BETA, ge=0, le=1, description="Weight of a misdetection against a false alarm.")
    kappa: float = Field(KAPPA, ge=0, le=1, description="Defines n_m^max.")
    prevalence: float | None = Field(
        None, ge=0, le=1, description="P(malicious) of every client, instead of an estimate."
    )
    max_malicious: int | None = Field(
        None,
        ge=0,
        description="n_m^max itself; if it is not given, graded evidence takes any minority of up to 21 clients, and of "
        "more 8, or any minority if 8 explain nothing.",
    )
    on_undecidable: OnUndecidable = Field(
        "stop", description="What happens when no group is clean, or everybody is flagged."
    )
    on_untested: OnUntested = Field(
        "exclude-silent", description="What becomes of clients without a tested group; see docs/decoding.md."
    )
    on_silent: OnSilent = Field(
        "report",
        description="What becomes of a client that leaves the secure sums at one stage in three of its last six rounds.",
    )
    after_test: AfterTest = Field(
        "next-round", description="What becomes of the test round's local models; see docs/privacy.md."
    )
    allow_below_promise: bool = Field(False, description="Accept that `same-round` breaks the promised privacy.")

    @property
    def binary_strategy(self) -> Strategy:
        """The strategy for outcomes of one bit a group."""
        return "bayes" if self.strategy == "auto" else self.strategy

    @property
    def binary(self) -> dict[str, Any]:
        """What `fedgt.decode.decode` takes of this."""
        return {
            "rates": self.rates,
            "strategy": self.binary_strategy,
            "beta": self.beta,
            "kappa": self.kappa,
            "largest": self.max_malicious,
            "estimator": self.estimator,
            "method": self.method,
        }

    @property
    def rates(self) -> ErrorRates:
        """What is assumed about the tests."""
        return ErrorRates(false_alarm=self.false_alarm, misdetection=self.misdetection)

    def require_for(self, screen: ScreenSettings) -> None:
        """Refuse options that the kind of evidence has no use for.

        Raises:
            SpecError: Names the option.
        """
        if screen.kind != "graded":
            return
        binary = "graded evidence, or set screen.kind = 'clusters' for one bit a group"
        if self.strategy != "auto":
            raise SpecError(f"decode.strategy = {self.strategy!r} is not for {binary}")
        if self.prevalence is not None:
            raise SpecError(f"decode.prevalence is not for {binary}; decode.nobody is its prior")
        if self.after_test == "negative-groups":
            raise SpecError(f"decode.after_test = 'negative-groups' is not for {binary}")

    def largest_graded(self, clients: int, features: Features = "auto", *, by_margins: bool = False) -> int:
        """The most malicious clients that graded evidence considers: as asked for, else a minority (`MOST_BY_DEFAULT`).

        Args:
            clients: n.
            features: What is asked for.
            by_margins: Whether `auto` has come to compare margins, by which fewer sets can be scored.

        Raises:
            SpecError: If a larger number was asked for than can be searched.
        """
        fewer = largest_scored(clients, most=MOST_SETS_BY_MARGINS)
        searched = fewer if features == "margins" else clients
        if self.max_malicious is not None and self.max_malicious > searched:
            raise SpecError(
                f"at most {self.max_malicious} malicious clients of {clients}: at most {searched} can be searched: lower "
                "decode.max_malicious"
            )
        minority = (clients - 1) // 2 if clients <= EVERY_MINORITY else MOST_BY_DEFAULT
        asked = minority if self.max_malicious is None else self.max_malicious
        return max(1, min(asked, fewer) if by_margins or features == "margins" else asked)
