"""One round of federated learning with group testing, readable as the paper's algorithm (section III).

Training round:  secure sum over the kept clients -> new global model.
Test round:      one secure sum per group -> screen -> decode -> exclude -> global model from what is already revealed.

Nothing is opened before the ledger was asked. What the server learns is in the records: every aggregate with its members,
its real weights and its status.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from fedgt.decode import UNDECIDABLE, Decoding
from fedgt.engine import SecureSums, fingerprint
from fedgt.errors import PrivacyError
from fedgt.evidence import (
    GradedDecoding,
    GradedScreen,
)
from fedgt.federation.checks import check_decoder, check_test
from fedgt.federation.group_means import group_means, real_rows
from fedgt.federation.hearing import Hearing, heard_again
from fedgt.federation.judgement import judge
from fedgt.federation.look import Look
from fedgt.federation.measure import Measured, measured
from fedgt.federation.new_model import one_more_sum, revealed_mean
from fedgt.federation.open_tests import OpenTests
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.silence import reason_of_most
from fedgt.federation.sums import RoundResult, Taken, averaged, shown, take, unusable
from fedgt.federation.verdicts import Exclusion, Verdict, exclude
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult
from fedgt.secagg import GroupSum
from fedgt.types import FloatArray, Parameters, SetEvidence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScreeningRound:
    """A test round: what it leaves behind, and the decision with its evidence.

    Attributes:
        result: The new global model and what was opened.
        grouping: Who is judged and sat where, with the members that each opened sum is really over.
        seats: The same with those who were excluded before and go on in their groups.
        measured: What the sums say.
        exclusion: What follows.
        final: What follows if no further test round can be held: then undecided clients are decided.
        undecided: Whether another test round could decide more.
        missing: Sets of clients with somebody in each who is behind what is missing in the sums; see `Suspicions`.
        spoilt: The clients that were in no sum yet that could be used, because members have broken the rules.
        opened_for: Why all sums were opened, where a round may do with fewer; else empty.
        open_tests: What a next test is added to, if this one leaves somebody undecided; with a test in every round.
        hearings: What the same sums say about clients that an earlier test has named, and that may come back.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel, Validation
        >>> rng = np.random.default_rng(0)
        >>> class Site:
        ...     def __init__(self):
        ...         self.step = rng.normal(scale=0.1, size=(4, 12))
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + self.step}, samples=40)
        >>> sites = {f"site-{j:02d}": Site() for j in range(15)}
        >>> labels, x = np.arange(200) % 4, rng.normal(size=(200, 12))
        >>> own = Validation(labels=labels, logits=lambda p: x @ p["weight"].T, inputs=lambda p: x)
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 40), validation=own, rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros((4, 12))})
        >>> step.screening.undecided, step.screening.grouping.design.groups
        (True, 10)
    """

    result: RoundResult
    grouping: Grouping
    seats: Grouping
    measured: Measured
    exclusion: Exclusion
    final: Exclusion
    undecided: bool
    missing: tuple[frozenset[str], ...] = ()
    spoilt: frozenset[str] = frozenset()
    opened_for: str = ""
    open_tests: OpenTests | None = None
    hearings: Mapping[str, Hearing] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def screen(self) -> ScreenResult | GradedScreen:
        """What the screen found: binary outcomes, or graded evidence."""
        return self.measured.screen

    @property
    def decoding(self) -> Decoding | GradedDecoding:
        """Who is suspected."""
        return self.measured.decoding

    @property
    def heard(self) -> dict[str, int]:
        """Client -> in how many sums of the evidence of this round it is."""
        counts = self.grouping.design.matrix[self.measured.compared].sum(axis=0).tolist()
        return {client: count for client, count in zip(self.grouping.clients, counts, strict=True) if count}

    @property
    def opened_rows(self) -> list[FloatArray]:
        """The real rows of the test sums that were opened, used or not, float64[clients] each."""
        return opened_rows(self.result, self.seats.clients)

    def halts(self, kept: int, promised: int) -> str:
        """Why the run may not go on after it; empty if it may.

        Args:
            kept: How many clients are left.
            promised: The promise r.
        """
        if self.exclusion.halt:
            refused = [record.reason for record in self.result.records if record.status == "refused"]
            ledger = f"; {len(refused)} sums were refused: {refused[0]}" if refused else ""
            return f"{self.exclusion.reason}{ledger}{reason_of_most(self.result.records, len(self.seats.clients))}"
        if kept < promised:
            return f"only {kept} clients are kept, no sum over them may be opened at the promised r = {promised}"
        return ""

    def told(self, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
        """What the user must not overlook about the test and its new verdicts."""
        warnings = []
        if self.screen.status != "tested":
            warnings.append(f"screen: {self.screen.reason}")
        if self.decoding.status in (*UNDECIDABLE, "unexplained", "harmless", "unconfirmed", "no-evidence"):
            warnings.append(f"decision: {self.exclusion.reason}")
        for excluded, what in ((False, "kept without evidence"), (True, "left out untested")):
            untested = [v.client for v in verdicts if v.verdict == "untested" and v.excluded is excluded]
            if untested:
                warnings.append(f"{what}: {', '.join(untested)}")
        return tuple(warnings)


def opened_rows(result: RoundResult, clients: Sequence[str]) -> list[FloatArray]:
    """float64[clients] each: the real rows of the test sums of a round that were opened, used or not."""
    column = {client: j for j, client in enumerate(clients)}
    rows = []
    for record in result.records:
        if record.status in ("open", "faulty") and record.purpose.startswith("test"):
            rows.append(np.zeros(len(column)))
            rows[-1][[column[client] for client in record.members]] = record.weights
    return rows


def training_round(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    members: Sequence[str],
    apart: Callable[[Sequence[str]], Sequence[tuple[str, ...]]] | None = None,
) -> RoundResult:
    """Secure FedAvg over the given clients: the new model is the old one plus the weighted mean update.

    If the sum cannot be opened (nobody answers, too few are left, the ledger refuses), the model stays as it is and the
    result says why. About a model that was summed before, as many of the clients are asked for as the promise allows.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        round: Its number.
        members: Who trains.
        apart: Who shares a sum, where they are not all in one: a sum that somebody spoils costs its own clients only.

    Raises:
        PrivacyError: If no sum about this model may be opened any more: the run needs other parameters to go on.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ClientEndpoint, Ledger, LocalTransport, TrainedModel
        >>> from fedgt.federation import Federation, training_round
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> names = ["ada", "bob", "cleo"]
        >>> federation = Federation(
        ...     run="example",
        ...     transport=LocalTransport({name: ClientEndpoint(name, Site()).handle for name in names}),
        ...     ledger=Ledger(clients=names, promised=3),
        ...     samples=dict.fromkeys(names, 10),
        ... )
        >>> result = training_round(federation, {"weight": np.zeros(2)}, round=1, members=names)
        >>> result.parameters["weight"].round(3).tolist()
        [1.0, 1.0]
    """
    whole = tuple(sorted(members))
    weights = {client: float(federation.weight(client)) for client in whole}
    part = federation.ledger.largest_part(weights, models=fingerprint(parameters).hex()) if whole else ()
    if part is None:
        raise PrivacyError(
            f"round {round}: sums about this global model are open already, and no further one keeps the promise of "
            f"{federation.ledger.promised} clients: go on with other parameters"
        )
    left = tuple(client for client in whole if client not in part)
    groups = [part] if apart is None or left else apart(part)
    taken = take(federation, parameters, round=round, purpose="training", groups=groups, test=False)
    opened = any(one.total is not None for one in taken.sums.sums)
    updated = averaged(parameters, taken.sums.sums)
    notes = (
        (
            f"round {round}: the global model is one that was summed before; {', '.join(left)} sat this round out, so that "
            "no difference of two sums shows too few clients",
        )
        if left
        else ()
    )
    lost = [] if opened else [unusable("the training sum", one) for one in taken.sums.sums]
    return taken.result(updated, (*notes, *(lost[0] if lost else ())))


def screening_round(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    grouping: Grouping,
    present: Sequence[str],
    validation: Validation,
    screen: ScreenSettings,
    decoding: DecodeSettings,
    earlier: Sequence[SetEvidence] = (),
    heard: Mapping[str, int] | None = None,
    before: Exclusion | None = None,
    last: bool = True,
    seed: int = 0,
    taken: Taken | None = None,
    missing: Sequence[frozenset[str]] = (),
    look: Look | None = None,
) -> ScreeningRound:
    """The group test: sums of all groups, screen, decode, exclude, and a global model that reveals nothing more.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        round: Its number; names the set of local models for the ledger.
        grouping: Who shares a group.
        present: The clients that take part; an absent client enters no group.
        validation: The server's validation set.
        screen: How groups are tested.
        decoding: How suspects are named, and the policies.
        earlier: Graded evidence of earlier test rounds about the same columns.
        heard: Client -> in how many sums of that evidence it is: it is tested, whether or not it is in a sum of this round.
        before: What the tests before would decide. It stands where this one cannot be explained, or has no evidence.
        last: Whether no further test round follows: then undecided clients are decided.
        seed: Of the clusters' starting positions.
        missing: That of earlier tests, as in `ScreeningRound`.
        look: How it is held and judged where there is a test in every round.
        taken: The sums of the groups of this round, or of the first of them, if they are open already (`staged_round`).

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel, Validation
        >>> rng, centres = np.random.default_rng(0), 2.0 * np.eye(4, 12)
        >>> class Site:
        ...     def __init__(self, poisons):
        ...         labels = np.arange(40) % 4
        ...         self.x = centres[labels] + rng.normal(size=(40, 12))
        ...         self.y = np.eye(4)[np.where(poisons & (labels == 0), 1, labels)]
        ...     def train(self, parameters, *, round):
        ...         weight = parameters["weight"].copy()
        ...         for _ in range(30):
        ...             chance = np.exp(self.x @ weight.T)
        ...             weight -= 0.1 * (chance / chance.sum(axis=1, keepdims=True) - self.y).T @ self.x / 40
        ...         return TrainedModel(parameters={"weight": weight}, samples=40)
        >>> sites = {f"site-{j:02d}": Site(j in (2, 5, 11)) for j in range(15)}
        >>> labels = np.arange(200) % 4
        >>> x = centres[labels] + rng.normal(size=(200, 12))
        >>> own = Validation(labels=labels, logits=lambda p: x @ p["weight"].T, inputs=lambda p: x)
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 40), validation=own, rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros((4, 12))})  # the run calls `screening_round` in its test
        >>> step.purpose, step.excluded
        ('test', ('site-02', 'site-05', 'site-11'))
    """
    look = Look() if look is None else look
    check_test(federation, parameters, grouping, validation, screen, further=bool(earlier) or look.later)
    check_decoder(grouping, screen, decoding)
    alone, decoding = decoding, look.settings(decoding)
    if taken is None:
        groups = look.groups(real_rows(federation, grouping), grouping, present)
        factors = [grouping.factors(i) for i in range(grouping.design.groups)]
        taken = take(
            federation, parameters, round=round, purpose="test", groups=groups, test=True, coefficients=factors
        )
    sums = taken.sums.sums
    # An outcome speaks about those whose models are in the sum, not about those who were to be in it.
    seen = shown(taken.sums)
    seats = real_grouping(grouping, sums, seen)
    faulty = {group for fault in taken.sums.faults if fault.erases for group in fault.groups}
    faulty |= {one.group for one in sums if one.faults and one.total is None}
    # Nothing shows that a struck sum has the vectors that its members would have given later: it is no hearing of them.
    heard_in = [one for one in sums if one.group not in taken.sums.struck]
    silent = _silent(grouping, present, heard_in, faulty - seen)
    everybody = group_means(federation, sums, parameters, seats)
    here = _missing(taken.sums)
    behind = look.unexplained(here if look.standing else [*missing, *here])
    said = judge(
        look,
        seats,
        everybody,
        validation,
        screen,
        decoding,
        earlier=earlier,
        heard=heard,
        behind=behind,
        round=round,
        seed=seed,
    )
    judged, found = said.grouping, said.found
    last = not look.standing and (last or not found.repeatable)
    doubt = bool(faulty) or bool(behind)
    decided = partial(exclude, judged, policies=decoding, silent=silent, faulty=faulty, doubt=doubt, round=round)
    final = decided(found.finding)
    # A first test that explains nothing is held again, as often as there may be first tests.
    if look.standing and found.finding.undecidable and not look.later:
        last = 1 + (0 if look.open_tests is None else len(look.open_tests.rounds)) >= screen.most_rounds
    decision = final if last else decided(found.finding, last=False)
    # Whoever spoils all of its sums must not be spared the test.
    spoilt = frozenset(
        one.client
        for one in decision.verdicts
        if one.client not in silent and one.verdict == "untested" and any(one.client in some for some in behind)
    )
    unheard = bool(faulty) and bool(np.isnan(found.finding.posterior).all())
    undecided = found.repeatable and (unheard or bool(spoilt) or bool(found.finding.undecided.any()))
    if before is not None and found.finding.undecidable:
        reason = f"{found.finding.reason}; what was found before stands: {before.reason}"
        decision = final = replace(before, reason=reason)
        undecided = found.repeatable and bool(spoilt)
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    if look.standing and found.finding.undecidable:
        lost = (f"round {round} is lost, the global model stays as it was: {found.finding.reason}",)
    elif not decision.halt:
        # Whoever is more likely malicious than not by this test alone sits out, whatever those before it say.
        out = look.sits_out(decision, decoding) | look.sits_out(decided(said.alone.finding, last=False), decoding)
        kept = tuple(client for client in decision.kept if client in set(present) - out)
    combined = decoding.after_test != "negative-groups"
    updated, note = revealed_mean(federation, parameters, sums, seats, kept, clean=found.clean, combined=combined)
    result = taken.result(updated, (*lost, *note))
    if kept and decoding.after_test in ("same-round", "largest-sum"):
        result = one_more_sum(federation, parameters, result, sums, seats, kept, decoding, round=round, seen=seen)
    return ScreeningRound(
        result=result,
        grouping=judged,
        seats=seats,
        measured=found,
        exclusion=decision,
        final=final,
        undecided=undecided,
        missing=here,
        spoilt=spoilt,
        open_tests=said.open_tests,
        hearings=heard_again(
            look,
            seats,
            everybody,
            taken=taken,
            present=present,
            judge=lambda one, others: measured(one, others, validation, screen, alone, seed=seed, known=look.features),
            undecided=alone.undecided,
        ),
    )


def real_grouping(grouping: Grouping, sums: Sequence[GroupSum], seen: Collection[int]) -> Grouping:
    """The same seats, with the members that each opened sum is really over; rows of sums that nobody has seen stay."""
    rows = grouping.rows[: len(sums)].copy()
    column = {client: j for j, client in enumerate(grouping.clients)}
    for one in sums:
        if one.total is not None or one.group in seen:
            there = np.zeros(len(column), dtype=np.bool_)
            there[[column[client] for client in one.members]] = True
            rows[one.group, ~there] = 0
    return grouping.of_rows(rows)


def _missing(taken: SecureSums) -> tuple[frozenset[str], ...]:
    """Somebody of each of these sets is behind what is missing; alone in one is who left a sum and is in another."""
    heard = {client for one in taken.sums if one.group not in taken.struck for client in one.members}
    left = {
        client
        for one in taken.sums
        if one.total is not None
        for client in one.dropped
        if client in heard and client not in one.members
    }
    faults = (frozenset(fault.suspects) for fault in taken.faults if fault.erases)
    return (*faults, *(frozenset({client}) for client in sorted(left)))


def _silent(
    grouping: Grouping, present: Sequence[str], sums: Sequence[GroupSum], spoilt: Collection[int]
) -> dict[str, str]:
    """Clients of the design whose model is in no sum through their own doing, with what happened to them.

    Who is missing in a sum that was spoilt before anybody has seen it may be the victim.
    """
    there, heard = set(present), {client for one in sums for client in one.members}
    reasons = {client: "absent" for client in grouping.clients if client not in there}
    for one in sums:
        for client, reason in one.dropped.items():
            if client not in heard and one.group not in spoilt:
                reasons.setdefault(client, reason)
    return reasons
