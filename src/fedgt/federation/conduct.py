"""What follows from how clients behave in the secure sums: who has lied, who leaves again and again, and who has to wait."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fedgt.federation.liars import SUSPECTED
from fedgt.federation.settings import DecodeSettings
from fedgt.federation.silence import LOOKED_AWAY, WINDOW
from fedgt.federation.state import Coming, RunState
from fedgt.federation.sums import RoundResult
from fedgt.federation.verdicts import Verdict

MOST_LIKELY = 3
"""So many clients wait at most who are undecided, and more likely than others behind what was spoilt."""

_AS_LIKELY = 0.25
"""Of the most likely one: who is less likely than this part of it does not wait beside it."""


def judged(
    state: RunState,
    coming: Coming,
    result: RoundResult,
    policies: DecodeSettings,
    missing: Iterable[frozenset[str]] = (),
    looked_away: Collection[str] = (),
) -> tuple[RunState, tuple[Verdict, ...], tuple[str, ...]]:
    """Add the faults and silences of a round up, and leave out whom they leave no doubt about.

    Args:
        state: Before they are known.
        coming: The round.
        result: What it left behind.
        policies: What follows if a client is silent again and again.
        missing: What is missing in its sums, if it was a test; see `Suspicions`.
        looked_away: Who was in its first sums, and left when more were asked for.

    Returns:
        The state after it; the verdicts about those who are left out; what must not be overlooked.
    """
    suspicions = state.suspicions.after(coming.round, result.faults, missing, result.complaints)
    silences = state.silences.after(coming.members, result.silent, looked_away)
    accused = suspicions.accused(coming.members, state.excluded) if result.faults or result.complaints else {}
    verdicts = [
        _left_out(
            client,
            f"it has broken the rules of the secure sums with P = {value:.4f}, by {len(suspicions.sets)} sets of clients "
            "with a liar in each",
            value,
        )
        for client, value in accused.items()
    ]
    told = []
    often = {
        client: f"it has left the secure sums at stage {stage!r} in {times} of its last {WINDOW} rounds"
        for client, (stage, times) in silences.often.items()
    } | {
        client: f"it has left in {times} rounds just when more sums of the same model were asked for"
        for client, times in silences.away.items()
        if times >= LOOKED_AWAY and client in looked_away
    }
    for client, said in often.items():
        if client not in result.silent or client in accused:
            continue
        if policies.on_silent == "exclude" and client not in state.excluded:
            verdicts.append(_left_out(client, f"{said}, and the policy leaves out whoever does", np.nan))
        else:
            told.append(f"{client}: {said}; kept, as the policy says")
    named = {one.client: replace(one, round=coming.round) for one in verdicts}
    after = replace(
        state,
        suspicions=suspicions,
        silences=silences,
        verdicts=MappingProxyType({**state.verdicts, **named}),
        excluded=state.excluded | set(named),
    )
    return after, tuple(named.values()), (*(one.reason for one in verdicts), *told)


def made_to_wait(
    state: RunState, clients: Collection[str], policies: DecodeSettings, *, mute: Collection[str] = (), least: int
) -> tuple[RunState, tuple[str, ...]]:
    """Who may be malicious, and was not judged because sums of the tests were spoilt, waits for a test: it is not left out.

    Whoever may have spoilt all of its sums does not train until a test hears it. Whoever the sums that are left accuse, but
    not beyond doubt, does not train until a test tells: they may be left so that an honest client looks like the liar. At
    most a minority waits, and the others are enough for a sum, so that nobody stops a run like this.

    While nobody who was left out explains the faults, three more kinds of clients wait: who stands out in the sums that are
    left, who leaves again and again, and of those that are not cleared the few that are most likely behind the other faults.

    Args:
        state: With the faults and the verdicts of the round.
        clients: Everybody.
        policies: With `on_untested = "keep"` nobody waits.
        mute: Those who have left the round, a test, by themselves. With answers that are missing many sums are at fault
            together, and the posterior suspects nobody in particular.
        least: The fewest clients of a training sum.

    Returns:
        The state; who waits from now on, in words.
    """
    kept = sorted(set(clients) - state.excluded)
    if not state.suspicions.missing or policies.on_untested == "keep":
        return replace(state, waiting=frozenset()), ()
    reasons = _why_to_wait(state, kept, policies, mute)
    waiting = [*reasons][: max(0, min((len(kept) - 1) // 2, len(kept) - least))]
    told = {client: f"{client} does not train until a test {reasons[client]}" for client in waiting}
    new = [client for client in waiting if client not in state.waiting]
    verdicts = {**state.verdicts, **{client: replace(state.verdicts[client], reason=told[client]) for client in new}}
    after = replace(state, waiting=frozenset(waiting), verdicts=MappingProxyType(verdicts))
    return after, tuple(told[client] for client in new)


def _why_to_wait(
    state: RunState, kept: Sequence[str], policies: DecodeSettings, mute: Collection[str]
) -> Mapping[str, str]:
    """Client -> why it waits, in the order of who has to if not all can."""
    posterior = state.suspicions.posterior(kept, state.excluded)
    spoilt = frozenset().union(*state.suspicions.missing)
    at_fault = bool(state.suspicions.unexplained(state.excluded))
    said = {client: state.verdicts[client] for client in kept if client in state.verdicts}
    # Where the sums do not show harm, a client is kept although it may stand out.
    least = policies.undecided if at_fault else 1.0
    unclear = [
        client
        for client, one in said.items()
        if one.verdict == "undecided" or (one.verdict != "untested" and one.posterior >= least)
    ]
    if policies.on_undecided == "keep":
        unclear = []
    accused = [client for client in unclear if said[client].posterior > 1.0 - policies.beta]
    leaving = [client for client in said if at_fault and client in spoilt and client in state.silences.often]
    unheard = [
        client
        for client, one in said.items()
        if one.verdict == "untested"
        and (client in state.waiting or posterior[client] > SUSPECTED or (client in mute and client in spoilt))
    ]
    accused.sort(key=lambda client: -said[client].posterior)
    unheard.sort(key=lambda client: (client not in mute, -posterior[client]))
    by_sums = "tells: it is malicious with P = {:.2f}, by the sums that are not spoilt"
    reasons = {client: by_sums.format(said[client].posterior) for client in accused}
    for client in leaving:
        reasons.setdefault(client, "tells: sums were spoilt, and it leaves again and again")
    # Who leaves again and again may be behind the faults that it is in: they make nobody else wait.
    rest = state.suspicions.posterior(kept, {*state.excluded, *leaving})
    heard = [client for client in unclear if client in rest and not np.isnan(said[client].posterior)]
    behind = {client: said[client].posterior * rest[client] for client in heard if rest[client] > SUSPECTED}
    likely = sorted((c for c in behind if behind[c] >= _AS_LIKELY * max(behind.values())), key=lambda c: -behind[c])
    for client in likely[:MOST_LIKELY]:
        reasons[client] = (
            f"{by_sums.format(said[client].posterior)}, and with P = {rest[client]:.2f} it has spoilt others"
        )
    for client in unheard:
        left = "it has left, and " if client in mute else ""
        why = f"hears it: {left}all of its sums were spoilt, by itself with P = {posterior[client]:.2f}"
        reasons.setdefault(client, why)
    return reasons


def _left_out(client: str, why: str, posterior: float) -> Verdict:
    odds = np.nan if np.isnan(posterior) else np.log1p(-posterior) - np.log(posterior) if posterior < 1 else -np.inf
    return Verdict(
        client=client,
        verdict="exclude",
        excluded=True,
        reason=f"{client} is left out: {why}",
        posterior=float(posterior),
        log_odds=float(odds),
        groups=(),
    )
