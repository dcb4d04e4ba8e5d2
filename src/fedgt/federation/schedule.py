"""A test in every round, and how a test of many is judged; `fedgt.federation.agenda` is about the other schedule.

In every round the same sums are taken, so that the account of all test rows together stays as it is after the first. Each
round is judged by itself. What may be spent on false alarms over a run is a setting: half of it on the first test, the rest
on the others, more on those that come first. The prior probability of an attack is a half in the first test; over all others
together it is the same, so that it is small in each.

On suspicion a round begins with a few of these sums, and is a test only if something is not as it was in the rounds before
(`fedgt.federation.on_suspicion`).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from fedgt.errors import SpecError
from fedgt.federation.first_look import FirstLook, remembered, spreads_of
from fedgt.federation.look import Look
from fedgt.federation.round import ScreeningRound, opened_rows
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.state import RunState
from fedgt.federation.sums import RoundResult
from fedgt.federation.views import chosen

_LOTS = 8
"""A stream of randomness of its own."""

_LONGEST = 20
"""Powers of two of rounds that open all sums at once."""


def settled(
    screen: ScreenSettings, decode: DecodeSettings, *, rounds: int, tested: bool, agreed: bool = False
) -> ScreenSettings:
    """The settings with `auto` replaced by the schedule that it stands for.

    Args:
        screen: How groups are tested.
        decode: How suspects are named.
        rounds: How many rounds the run has.
        tested: Whether there is a validation set.
        agreed: Whether the rounds of the tests were agreed beforehand.

    Raises:
        SpecError: If `roll_back` or `readmit_after` is set, and no test can follow the first one.
    """
    if screen.schedule != "auto":
        return screen
    once = [
        reason
        for reason, holds in (
            ("there is no validation set", not tested),
            ("the run has one round", rounds < 2),
            ("the test rounds are agreed beforehand", agreed),
            (f"screen.kind = {screen.kind!r}", screen.kind != "graded"),
            (f"screen.round = {screen.round}", screen.round != 1),
            (f"screen.features = {screen.features!r}", screen.features == "outputs"),
            (f"decode.after_test = {decode.after_test!r}", decode.after_test != "next-round"),
        )
        if holds
    ]
    if once and tested and (screen.roll_back or screen.readmit_after):
        setting = "roll_back" if screen.roll_back else "readmit_after"
        raise SpecError(
            f"screen.{setting} is for runs that are watched in every round, and this one is tested once, because "
            f"{' and '.join(once)}: leave screen.{setting} out, or set screen.schedule and what it needs"
        )
    return screen.model_copy(update={"schedule": "first" if once else "on-suspicion"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A test in every round.

    Attributes:
        rounds: How many rounds the run has.
        screen: How groups are tested.
        decode: How suspects are named.
        secret: Decides in which rounds a test is drawn; who knows it knows them.
    """

    rounds: int
    screen: ScreenSettings
    decode: DecodeSettings
    secret: int = field(repr=False)

    @classmethod
    def of(
        cls, screen: ScreenSettings, decode: DecodeSettings, *, rounds: int, tested: bool, secret: int
    ) -> "Standing | None":
        """The schedule of a run; None where the settings ask for another one.

        Args:
            screen: How groups are tested.
            decode: How suspects are named.
            rounds: How many rounds the run has.
            tested: Whether there is a validation set.
            secret: Of the server alone; of a simulation its seed.

        Raises:
            SpecError: If there is none.
        """
        screen = settled(screen, decode, rounds=rounds, tested=tested)
        if screen.schedule == "first":
            return None
        if not tested:
            raise SpecError(
                f"screen.schedule = {screen.schedule!r} tests groups with a validation set: give one, or leave the schedule "
                "out"
            )
        return cls(rounds=rounds, screen=screen, decode=decode, secret=secret)

    def error(self, test: int) -> float:
        """The probability of a false alarm that a test may have, from 1: all of them together have that of the settings.

        Of what is left after the first, half is spent evenly, and half on those that come first: with tests on suspicion
        these are few.
        """
        half, later = self.screen.false_exclusions / 2, max(1, self.rounds - 1)
        if test == 1:
            return half
        early = float((test - 1) ** -2.0 / np.sum(np.arange(1, later + 1) ** -2.0))
        return half / 2 / later + half / 2 * early

    def nobody(self, test: int) -> float:
        """The prior probability that nobody attacks who did not attack in the test before, which is numbered from 1."""
        return self.decode.nobody if test == 1 else float(self.decode.nobody ** (1.0 / max(1, self.rounds - 1)))

    def judging(self, tests: int) -> Look:
        """How a test is judged after so many that said something."""
        test = tests + 1
        return Look(later=tests > 0, standing=True, error=self.error(test), nobody=self.nobody(test))

    def look(self, state: RunState) -> Look:
        """How the next test is held and judged."""
        still = asked_still(state)
        # Who was let back once, and is out again, never comes back.
        trials = {client: one for client, one in state.trials.items() if client in still and not one.back_in}
        look = replace(
            self.judging(state.tests),
            opened=state.revealed,
            aside=still,
            trials=trials,
            odd=state.odd,
            features=state.features,
            open_tests=state.open_tests,
        )
        if state.home is None or state.grouping is None:
            return look
        return replace(look, added=state.grouping.design.groups - state.home.design.groups)

    @property
    def most_added(self) -> int:
        """How many groups a test may have beside those of the first one; none where no others may be asked for.

        As many as two further tests of the other schedule: they must make up for those that are spoilt.
        """
        return 2 * self.screen.more_groups if self.screen.most_rounds > 1 else 0

    @property
    def on_suspicion(self) -> bool:
        """Whether a round may do with a few sums."""
        return self.screen.schedule == "on-suspicion"

    def drawn(self, round: int) -> bool:
        """Whether the lot makes a round a test."""
        rng = np.random.default_rng([self.secret, _LOTS, round])
        return float(rng.random()) < self.screen.unannounced

    def at_once(self, state: RunState) -> str:
        """Why the next round opens all sums from the beginning; empty where it may begin with a few."""
        if any(one.back_in == state.round for one in state.trials.values()):
            return "somebody has come back"
        if not state.looks:
            return (
                "it is the first test"
                if not state.tests
                else "the last test has left something open, or named somebody"
            )
        if state.waiting:
            return f"{', '.join(sorted(state.waiting))} wait for a test"
        if state.round < state.refused[1]:
            return "somebody has left when more sums were asked for in an earlier round"
        if state.suspicions.apart(state.round + 1, state.excluded):
            return "somebody has broken the rules of the secure sums, and it is not known who"
        return ""

    def held(
        self,
        state: RunState,
        result: RoundResult,
        screening: ScreeningRound | None,
        look: FirstLook | None,
        looked_away: Collection[str],
    ) -> RunState:
        """The state after a round; the next one has the same members of every group that was opened.

        Args:
            state: Before it.
            result: What was opened.
            screening: The test; None where a few sums were enough.
            look: What the first sums have shown; None where all sums are opened in every round, or they do not say.
            looked_away: Who was in the first sums, and left when more were asked for: the next rounds ask for all sums at
                once, twice as many each time, so that it costs few rounds, and no round in which a client is not looked at.
        """
        assert state.grouping is not None  # noqa: S101 - there are groups wherever there are tests
        seats = state.grouping if screening is None else screening.seats
        known = {row.tobytes(): row for row in (*state.revealed, *opened_rows(result, seats.clients))}
        calm = look is not None and (screening is None or _calm(screening, look))
        looks = () if look is None or not calm else remembered([one for one in state.looks if look.follows(one)], look)
        times = state.refused[0] + 1
        after = replace(
            state,
            revealed=tuple(known.values()),
            next_test=state.round + 1,
            grouping=seats,
            looks=looks,
            usual=spreads_of(looks) or state.usual,
            refused=(times, state.round + 2 ** min(times, _LONGEST)) if looked_away else state.refused,
        )
        if screening is None:
            return after
        if self.screen.roll_back and calm:
            after = replace(after, safe=(state.round, state.parameters))
        # A test that could not be added leaves those before it open.
        tests = screening.open_tests or state.open_tests
        evidence = screening.measured.evidence
        heard = evidence is not None and (state.tests > 0 or not screening.measured.finding.undecidable)
        odd = {one.client for one in screening.exclusion.verdicts if one.verdict == "suspicious"}
        return replace(
            after,
            # A first test that says nothing is none: its policies and its share of the false alarms are for the next one.
            tests=state.tests + int(heard),
            open_tests=tests if screening.undecided and not screening.exclusion.halt else None,
            odd=frozenset(odd) if heard and not state.tests else state.odd,
            features=chosen(evidence) if evidence is not None and heard and not state.tests else state.features,
        )


def rolled_back(state: RunState, screening: ScreeningRound | None) -> tuple[RunState, tuple[str, ...]]:
    """Where a test leaves somebody out, the state with the model of the last one that left nothing open, and a word on it.

    Training from that model again asks for the same sums as before, so that the account stays as it is.
    """
    if screening is None or state.safe is None or not screening.exclusion.excluded:
        return state, ()
    number, model = state.safe
    if number + 1 >= state.round:  # no quiet round in between
        return state, ()
    said = f"round {state.round}: back to the model of round {number}, the last test that left nothing open"
    return replace(state, parameters=model, safe=None), (said,)


def _calm(screening: ScreeningRound, look: FirstLook) -> bool:
    """Whether a test leaves nothing open: then its first sums are what later ones are compared with."""
    if screening.measured.evidence is None or screening.exclusion.halt or screening.exclusion.excluded:
        return False
    clients = screening.seats.clients
    seen = {clients[j] for j in np.flatnonzero(look.rows.any(axis=0)).tolist()}
    kept = [one for one in screening.exclusion.verdicts if one.client in seen]
    # Who is suspicious differs from the others: to be used to it would cover what it does later.
    return all(one.verdict == "keep" for one in kept)


def asked_still(state: RunState) -> frozenset[str]:
    """Who is excluded, but goes on in its groups: it was in a sum that was opened, and the rows are to stay the same."""
    if state.grouping is None or not state.revealed:
        return frozenset()
    clients = state.grouping.clients
    opened = {clients[j] for row in state.revealed for j in np.flatnonzero(row).tolist()}
    return frozenset(opened & state.excluded)


def gone(state: RunState, every: Standing | None) -> frozenset[str]:
    """Who is asked for nothing any more."""
    return state.excluded - (frozenset() if every is None else asked_still(state))
