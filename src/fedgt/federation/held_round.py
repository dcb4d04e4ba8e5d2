"""One round of a run, whatever it is for: which sums are taken, and what is looked at in them."""

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedgt.federation.first_look import FirstLook
from fedgt.federation.liars import parting
from fedgt.federation.on_suspicion import round_on_suspicion
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.rfa import rfa_round
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.federation.schedule import Standing
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings
from fedgt.federation.state import Coming, RunState
from fedgt.federation.sums import RoundResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldRound:
    """What a round leaves behind.

    Attributes:
        result: The new global model and what was opened.
        screening: The test; None where there was none, or a few sums were enough.
        look: With tests on suspicion: what the first sums show; None where they do not say.
        looked_away: Who was in the first sums, and left when more were asked for.
    """

    result: RoundResult
    screening: ScreeningRound | None = None
    look: FirstLook | None = None
    looked_away: frozenset[str] = frozenset()


def hold_round(
    federation: Federation,
    coming: Coming,
    state: RunState,
    *,
    validation: Validation | None,
    screen: ScreenSettings,
    decode: DecodeSettings,
    rfa: RfaSettings | None,
    standing: Standing | None,
    last: bool,
    least: int,
    seed: int,
) -> HeldRound:
    """Hold a round, as its purpose says.

    Args:
        federation: Who takes part.
        coming: The round.
        state: Before it.
        validation: The server's validation set; None holds no test.
        screen: How groups are tested.
        decode: How suspects are named, and the policies.
        rfa: Take the geometric median of the updates.
        standing: The schedule, where it is one of many tests.
        last: Whether no further test follows this one, if it is one.
        least: The fewest clients of a training sum.
        seed: Of the run.
    """
    if rfa is not None:
        who = coming.members
        return HeldRound(result=rfa_round(federation, coming.parameters, round=coming.round, members=who, rfa=rfa))
    if coming.purpose != "test" or state.grouping is None or validation is None:
        # One sum over all; several, drawn anew, for some rounds after a fault that nobody has been left out for.
        apart = parting(state.suspicions, coming.round, least=least, gone=state.excluded, seed=seed)
        result = training_round(federation, coming.parameters, round=coming.round, members=coming.members, apart=apart)
        return HeldRound(result=result)
    screened = partial(
        screening_round,
        validation=validation,
        screen=screen,
        decoding=decode,
        earlier=state.evidence,
        heard=state.heard,
        missing=state.suspicions.missing,
        before=state.decided,
        seed=seed,
        last=last,
    )
    look = None if standing is None else standing.look(state)
    how: dict[str, Any] = {"round": coming.round, "grouping": state.grouping, "present": coming.members}
    if standing is None or look is None or not standing.on_suspicion:
        screening = screened(federation, coming.parameters, **how, look=look)
        return HeldRound(result=screening.result, screening=screening)
    found = round_on_suspicion(
        federation,
        coming.parameters,
        **how,
        validation=validation,
        layer=screen.layer,
        look=look,
        before=state.looks,
        usual=state.usual,
        at_once=standing.at_once(state),
        drawn=standing.drawn(coming.round),
        screening=screened,
    )
    if found.reason:
        _log.info("round %d opens all sums: %s", coming.round, found.reason)
    return HeldRound(result=found.result, screening=found.screening, look=found.look, looked_away=found.looked_away)
