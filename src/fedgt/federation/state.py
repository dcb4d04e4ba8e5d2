"""A run between two rounds, a round that is about to be held, and one that was."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from fedgt.federation.first_look import FirstLook
from fedgt.federation.liars import Suspicions
from fedgt.federation.open_tests import OpenTests
from fedgt.federation.round import ScreeningRound
from fedgt.federation.silence import Silences
from fedgt.federation.sums import RoundResult
from fedgt.federation.trial import Trial
from fedgt.federation.verdicts import Exclusion, Verdict
from fedgt.federation.views import Chosen
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.types import FloatArray, Parameters, SetEvidence

Purpose = Literal["training", "test", "weiszfeld"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunState:
    """Everything that travels from one round to the next. Whoever has it can go on with the run.

    Attributes:
        parameters: The global model.
        ledger: What was opened, and what may still be.
        round: The last finished round; 0 before the first.
        excluded: Who is left out from now on.
        verdicts: Client -> what was decided about it last.
        evidence: Graded evidence of all tests so far.
        heard: Client -> in how many sums of that evidence it is.
        revealed: float64[clients] each, the real rows of all test sums that were opened.
        tests: How many test rounds were held.
        next_test: The round of the next test; 0 where none is due.
        grouping: Who shares a group in it.
        lost: Rounds that were under way when the server stopped, and are not held again.
        decided: What follows from the tests so far if no further one can tell; None where they could not either.
        suspicions: What the faults of the secure sums of all rounds say by now.
        silences: Who has left the sums of the last rounds by itself, and when.
        waiting: Who does not train until a test hears it.
        odd: With a test in every round: whom the first one found suspicious.
        features: With a test in every round: what the first one has compared; empty before it.
        open_tests: With a test in every round: the last ones, while they leave somebody undecided; else None.
        looks: With tests on suspicion: what the first sums of earlier rounds have shown, the latest last; none after a test
            that has left something open.
        usual: The same until the last such test.
        refused: With tests on suspicion: how often somebody has left when more sums were asked for, and the last round that
            opens all sums at once for that.
        trials: With `screen.readmit_after`: whom tests have named, and what later ones say about them.
        home: With a test in every round, or on suspicion: the groups of the first test, where `grouping` has more after a
            fault; else None.
        safe: With `screen.roll_back`: the round of the last test that left nothing open, and the global model after it.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> _ = list(run.rounds({"weight": np.zeros(2)}))
        >>> run.state.round, run.state.ledger.account().strict
        (1, 4)
    """

    parameters: Parameters
    ledger: Ledger
    round: int = 0
    excluded: frozenset[str] = frozenset()
    verdicts: Mapping[str, Verdict] = field(default_factory=lambda: MappingProxyType({}))
    evidence: tuple[SetEvidence, ...] = ()
    heard: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    revealed: tuple[FloatArray, ...] = ()
    tests: int = 0
    next_test: int = 0
    grouping: Grouping | None = None
    lost: tuple[int, ...] = ()
    decided: Exclusion | None = None
    suspicions: Suspicions = field(default_factory=Suspicions)
    silences: Silences = field(default_factory=Silences)
    waiting: frozenset[str] = frozenset()
    odd: frozenset[str] = frozenset()
    features: Chosen = ""
    open_tests: OpenTests | None = None
    looks: tuple[FirstLook, ...] = ()
    usual: tuple[FirstLook, ...] = ()
    refused: tuple[int, int] = (0, 0)
    trials: Mapping[str, Trial] = field(default_factory=lambda: MappingProxyType({}))
    home: Grouping | None = None
    safe: tuple[int, Parameters] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coming:
    """A round that is about to be held.

    Attributes:
        round: Its number, from 1.
        purpose: `training`, `test` or `weiszfeld`.
        members: The clients that take part. With a test in every round those are among them who were excluded and go on in
            their groups, without influence.
        parameters: The global model that they start from.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> run.begin({"weight": np.zeros(2)})
        >>> coming = run.coming()
        >>> coming.round, coming.purpose, coming.members
        (1, 'training', ('ada', 'bob', 'cleo', 'dan'))
    """

    round: int
    purpose: Purpose
    members: tuple[str, ...]
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A finished round.

    Attributes:
        round: Its number, from 1.
        purpose: `training`, `test` or `weiszfeld`.
        members: The clients that took part.
        parameters: The global model after it.
        result: Every aggregate that was asked for, bytes and warnings.
        screening: The test with its evidence and decision; None in another round.
        verdicts: What was newly decided, about clients that were still there.
        excluded: Everybody who is left out from now on.
        warnings: What must not be overlooked about the round.
        readmitted: Who was left out by a test and comes back from the next round on, and why.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros(2)})
        >>> step.members, step.screening is None, step.excluded
        (('ada', 'bob', 'cleo', 'dan'), True, ())
        >>> step
        Step(round=1, purpose='training', members=4, excluded=(), verdicts=(), warnings=0)
    """

    round: int
    purpose: Purpose
    members: tuple[str, ...]
    parameters: Parameters
    result: RoundResult
    screening: ScreeningRound | None
    verdicts: tuple[Verdict, ...]
    excluded: tuple[str, ...]
    warnings: tuple[str, ...]
    readmitted: Mapping[str, Trial] = field(default_factory=lambda: MappingProxyType({}))

    def __repr__(self) -> str:
        """What a reader looks for, without the arrays."""
        said = tuple(f"{one.client}: {one.verdict}" for one in self.verdicts)
        return (
            f"Step(round={self.round}, purpose={self.purpose!r}, members={len(self.members)}, excluded={self.excluded}, "
            f"verdicts={said}, warnings={len(self.warnings)})"
        )
