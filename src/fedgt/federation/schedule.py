"""A test in every round, and how a test of many is judged; `fedgt.federation.agenda` is about the other schedule.

In every round the same sums are taken, so that the account of all test rows together stays as it is after the first. Each
round is judged by itself. What may be spent on false alarms over a run is a setting: half of it on the first test, the rest
in equal parts on the others. The prior probability of an attack is a half in the first test; over all others together it is
the same, so that it is small in each.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedgt.errors import SpecError
from fedgt.federation.look import Look
from fedgt.federation.round import ScreeningRound
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A test in every round.

    Attributes:
        rounds: How many rounds the run has.
        screen: How groups are tested.
        decode: How suspects are named.
    """

    rounds: int
    screen: ScreenSettings
    decode: DecodeSettings

    @classmethod
    def of(cls, screen: ScreenSettings, decode: DecodeSettings, *, rounds: int, tested: bool) -> "Standing | None":
        """The schedule of a run; None where the settings ask for another one.

        Raises:
            SpecError: If there is none.
        """
        if screen.schedule == "first":
            return None
        if not tested:
            raise SpecError(
                "screen.schedule = 'every-round' tests groups with a validation set: give one, or leave the schedule out"
            )
        return cls(rounds=rounds, screen=screen, decode=decode)

    def error(self, test: int) -> float:
        """The probability of a false alarm that a test may have, from 1: all of them together have that of the settings."""
        half = self.screen.false_exclusions / 2
        return half if test == 1 else half / max(1, self.rounds - 1)

    def nobody(self, test: int) -> float:
        """The prior probability that nobody attacks who did not attack in the test before, which is numbered from 1."""
        return self.decode.nobody if test == 1 else float(self.decode.nobody ** (1.0 / max(1, self.rounds - 1)))

    def judging(self, tests: int) -> Look:
        """How a test is judged after so many that said something."""
        test = min(tests + 1, 2)
        return Look(later=tests > 0, standing=True, error=self.error(test), nobody=self.nobody(test))

    def look(self, state: RunState) -> Look:
        """How the next test is held and judged."""
        return replace(self.judging(state.tests), opened=state.revealed, aside=asked_still(state), odd=state.odd)

    def after(self, state: RunState, screening: ScreeningRound) -> tuple[RunState, ScreeningRound]:
        """The state after a test; the next round has one, too, with the same members of every group that was opened."""
        known = {row.tobytes(): row for row in (*state.revealed, *screening.opened_rows)}
        heard = screening.measured.evidence is not None
        odd = {one.client for one in screening.exclusion.verdicts if one.verdict == "suspicious"}
        after = replace(
            state,
            revealed=tuple(known.values()),
            # A first test that says nothing is none: its policies and its share of the false alarms are for the next one.
            tests=state.tests + int(heard),
            odd=frozenset(odd) if heard and not state.tests else state.odd,
            next_test=state.round + 1,
            grouping=screening.seats,
        )
        return after, screening


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
