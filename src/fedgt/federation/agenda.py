"""In which rounds groups are tested, if not in every one: those that were agreed, or one, and more while in doubt."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType

from fedgt.errors import SpecError
from fedgt.federation.further import further_design
from fedgt.federation.participants import Federation
from fedgt.federation.round import ScreeningRound
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.state import RunState
from fedgt.grouping import Grouping


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """The tests of a run.

    Attributes:
        agreed: The rounds that were agreed beforehand, sorted; without them the settings say when.
        screen: How groups are tested.
        decode: How suspects are named.
    """

    agreed: tuple[int, ...]
    screen: ScreenSettings
    decode: DecodeSettings

    @classmethod
    def of(cls, numbers: Collection[int], rounds: int, screen: ScreenSettings, decode: DecodeSettings) -> "Agenda":
        """The tests of a run.

        Args:
            numbers: The test rounds that were agreed beforehand, from 1.
            rounds: How many rounds the run has.
            screen: How groups are tested.
            decode: How suspects are named.

        Raises:
            SpecError: If there is no such round, or the settings ask for other tests.
        """
        if not all(1 <= number <= rounds for number in numbers):
            raise SpecError(f"test rounds {sorted(numbers)} of {rounds} rounds: numbers from 1 are needed")
        agreed = tuple(sorted(set(numbers)))
        if agreed and screen.schedule not in ("auto", "first"):
            raise SpecError(
                f"screen.schedule = {screen.schedule!r} says itself when groups are tested: leave it out, or leave out "
                "test_rounds"
            )
        if agreed and (given := sorted({"round", "most_rounds", "more_groups"} & screen.model_fields_set)):
            raise SpecError(
                f"test rounds {', '.join(map(str, agreed))} are agreed beforehand, so no further test follows: "
                f"leave out screen.{', screen.'.join(given)}, or leave out test_rounds"
            )
        return cls(agreed=agreed, screen=screen, decode=decode)

    def next_agreed(self, after: int, lost: int = 0) -> int:
        """The next test round that was agreed beforehand, later by the rounds that were lost; 0 where there is none."""
        return next((number + lost for number in self.agreed if number + lost > after), 0)

    def may_go_on(self, tests: int) -> bool:
        """Whether a further test may follow so many, if clients stay undecided."""
        wanted = not self.agreed and self.decode.on_undecided == "test-again"
        return wanted and tests < self.screen.most_rounds

    def ends_with(self, number: int, state: RunState, last: int) -> bool:
        """Whether the test in a round is the last one, of a run with this last round."""
        if self.agreed:
            return not self.next_agreed(number, len(state.lost))
        return state.tests + 1 >= self.screen.most_rounds or number >= last

    def most_groups(self, number: int, state: RunState, *, tested: int, trained: int) -> int:
        """The most groups that a coming round may have.

        Args:
            number: The next round, or the one after it.
            state: Before the next round.
            tested: The groups of the first test.
            trained: The most training sums.
        """
        known = 0 if state.grouping is None else state.grouping.design.groups
        if number == state.round + 1:
            return known if number == state.next_test and known else trained
        held = number - len(state.lost)
        if self.agreed:
            return tested if held in self.agreed else trained
        if held == self.screen.round and not state.tests:
            return max(1, tested)
        if state.next_test != number - 1 or not known or not self.may_go_on(state.tests + 1):
            return trained
        # New rows, or every row that was opened by then once more.
        return max(self.screen.more_groups, len(state.revealed) + known)

    def after(
        self,
        state: RunState,
        screening: ScreeningRound,
        federation: Federation,
        *,
        first: Grouping | None,
        seed: int,
    ) -> tuple[RunState, ScreeningRound]:
        """Add the evidence up and see whether another test follows; if none can, undecided clients are decided now.

        Args:
            state: Before the evidence of the test is in it.
            screening: The test.
            federation: Who takes part.
            first: Who shared a group in the first test.
            seed: Of the run.
        """
        evidence, heard = state.evidence, dict(state.heard)
        if screening.measured.evidence is not None:
            evidence = (*evidence, screening.measured.evidence)
            for client, count in screening.heard.items():
                heard[client] = heard.get(client, 0) + count
        state = replace(
            state,
            evidence=evidence,
            heard=MappingProxyType(heard),
            revealed=(*state.revealed, *screening.opened_rows),
            tests=state.tests + 1,
            next_test=self.next_agreed(state.round, len(state.lost)),
            decided=None if screening.final.halt else screening.final,
        )
        if not screening.undecided or not self.may_go_on(state.tests) or screening.exclusion.halt:
            return state, screening
        design = further_design(
            federation,
            first or screening.grouping,
            screening.measured.best,
            state.revealed,
            suspicions=state.suspicions,
            spoilt=screening.spoilt,
            gone=state.excluded | set(screening.exclusion.excluded),
            groups=self.screen.more_groups,
            seed=seed,
            same_again=screening.measured.same_again,
        )
        if design is None:
            return state, replace(screening, exclusion=screening.final)
        grouping = Grouping.of(design, screening.grouping.clients)
        return replace(state, next_test=state.round + 1, grouping=grouping), screening
