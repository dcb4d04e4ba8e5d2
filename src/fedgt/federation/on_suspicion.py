"""A round that begins with a few sums, and opens the others of a test only where something is not as it was before.

If nothing is, the first sums make the new model, and the round costs and discloses little more than plain secure averaging.
Otherwise further sums of the same local models are opened, and the round is a test like any other. Nobody trains twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedgt.engine import SecureSums
from fedgt.federation.first_look import FirstLook, first_look, grown, reason_to_open_more
from fedgt.federation.first_rows import first_rows
from fedgt.federation.group_means import group_means, real_rows
from fedgt.federation.look import Look
from fedgt.federation.new_model import revealed_mean
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.round import ScreeningRound, real_grouping
from fedgt.federation.sums import RoundResult, foreseen, take
from fedgt.grouping import Grouping
from fedgt.types import Parameters

DRAWN = "it was drawn by lot"
"""Why a round is opened in which nothing is suspicious: whoever knows what is looked at could hide from it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundOnSuspicion:
    """A round of this kind.

    Attributes:
        result: The new global model and what was opened.
        screening: The test; None where the first sums were enough.
        look: What the first sums show; None where they do not say.
        reason: Why all sums were opened; empty where they were not.
        looked_away: Who was in the first sums, and left when more were asked for.
    """

    result: RoundResult
    screening: ScreeningRound | None
    look: FirstLook | None
    reason: str
    looked_away: frozenset[str] = frozenset()


def round_on_suspicion(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    grouping: Grouping,
    present: Sequence[str],
    validation: Validation,
    layer: str,
    look: Look,
    before: Sequence[FirstLook],
    usual: Sequence[FirstLook],
    at_once: str,
    drawn: bool,
    screening: Callable[..., ScreeningRound],
) -> RoundOnSuspicion:
    """Hold the round.

    Args:
        federation: Who takes part.
        parameters: The global model at the start of the round.
        round: Its number.
        grouping: Who shares a group.
        present: The clients that take part.
        validation: The server's validation set.
        layer: The classification layer.
        look: How the test is held, if there is one.
        before: The looks at earlier rounds, the latest last; none after a test that has left something open.
        usual: The same until that test.
        at_once: Why all sums are opened at once, as where there is nothing to compare with; empty if they are not.
        drawn: Whether the others are opened whatever the first ones show. Clients learn it after they have sent those.
        screening: `screening_round` with the arguments that are not given here, as `functools.partial`.
    """
    asked = look.groups(real_rows(federation, grouping), grouping, present)
    factors = [grouping.factors(number) for number in range(len(asked))]
    refused = foreseen(federation, parameters, asked, factors)
    asked = [() if number in refused else members for number, members in enumerate(asked)]
    given = np.array([bool(members) for members in asked])
    weights = np.array([federation.weight(client) for client in grouping.clients], dtype=np.float64)
    aside = np.array([client in look.aside for client in grouping.clients], dtype=np.bool_)
    planned = np.where(given[:, None], real_rows(federation, grouping), 0.0)
    planned[:, [client not in set(present) for client in grouping.clients]] = 0.0
    first = first_rows(planned, weights=weights, aside=aside)
    order = [*first, *(number for number in range(len(asked)) if number not in first)]
    grouping, asked = grouping.of_rows(grouping.rows[order]), [asked[number] for number in order]
    rows = planned[order][: len(first)]
    if not at_once and not (before and np.array_equal(before[-1].rows, rows)):
        at_once = "the first sums are of others than before" if before else "there is no earlier round to compare with"
    if len(first) == int(given.sum()):
        at_once = at_once or "fewer sums give no good model"
    reason, seen = at_once, None
    moved, notes = parameters, tuple[str, ...]()
    there: frozenset[str] = frozenset()
    kept = sorted(set(present) - look.aside)

    def looked_at(opened: SecureSums) -> bool:
        """Look at the first sums; whether they say something."""
        nonlocal seen, moved, notes
        sums = opened.sums[: len(first)]
        whole = all(one.total is not None and one.members == members for one, members in zip(sums, asked, strict=False))
        if not sums or not whole or set(opened.struck) & set(range(len(first))):
            return False
        part = grouping.of_rows(grouping.rows[: len(first)])
        seats = real_grouping(part, sums, frozenset())
        moved, notes = revealed_mean(federation, parameters, sums, seats, kept)
        _, means = look.judged(seats, group_means(federation, sums, parameters, seats))
        seen = first_look(rows, means, moved, layer=layer, validation=validation, before=before, round=round)
        return not notes

    def go_on(opened: SecureSums) -> bool:
        nonlocal reason, there
        there = frozenset(client for one in opened.sums if one.total is not None for client in one.members)
        if not looked_at(opened) or seen is None or opened.faults:
            reason = "not all of the first sums could be used"
        else:
            reason = reason_to_open_more(seen, before) or (DRAWN if drawn else "")
        return bool(reason)

    staged = not at_once
    taken = take(
        federation,
        parameters,
        round=round,
        purpose="test",
        groups=asked,
        test=True,
        stages=(len(first), len(asked) - len(first)) if staged else (),
        go_on=go_on if staged else None,
        coefficients=[grouping.factors(number) for number in range(len(asked))],
    )
    if staged and not reason:
        return RoundOnSuspicion(result=taken.result(moved, notes), screening=None, look=seen, reason="")
    if seen is None and not taken.sums.faults:
        looked_at(taken.sums)
    held = look if seen is None else replace(look, grown=grown(seen, usual))
    screened = screening(
        federation, parameters, round=round, grouping=grouping, present=present, taken=taken, look=held
    )
    return RoundOnSuspicion(
        result=screened.result,
        screening=replace(screened, opened_for=reason),
        look=None if seen is None else replace(seen, tested=True),
        reason=reason,
        looked_away=there & set(taken.silent),
    )
