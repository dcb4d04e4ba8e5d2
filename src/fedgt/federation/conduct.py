"""What follows from how clients behave in the secure sums: who has lied, who leaves again and again, and who has to wait."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fedgt.federation.liars import SUSPECTED
from fedgt.federation.settings import DecodeSettings
from fedgt.federation.silence import WINDOW
from fedgt.federation.state import Coming, RunState
from fedgt.federation.sums import RoundResult
from fedgt.federation.verdicts import Verdict


def judged(
    state: RunState,
    coming: Coming,
    result: RoundResult,
    policies: DecodeSettings,
    missing: Iterable[frozenset[str]] = (),
) -> tuple[RunState, tuple[Verdict, ...], tuple[str, ...]]:
    """Add the faults and silences of a round up, and leave out whom they leave no doubt about.

    Args:
        state: Before they are known.
        coming: The round.
        result: What it left behind.
        policies: What follows if a client is silent again and again.
        missing: What is missing in its sums, if it was a test; see `Suspicions`.

    Returns:
        The state after it; the verdicts about those who are left out; what must not be overlooked.
    """
    suspicions = state.suspicions.after(coming.round, result.faults, missing)
    silences = state.silences.after(coming.members, result.silent)
    accused = suspicions.accused(coming.members, state.excluded) if result.faults else {}
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
    for client, (stage, times) in silences.often.items():
        if client not in result.silent or client in accused:
            continue
        said = f"it has left the secure sums at stage {stage!r} in {times} of its last {WINDOW} rounds"
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
    posterior = state.suspicions.posterior(kept, state.excluded)
    spoilt = frozenset().union(*state.suspicions.missing)
    said = {client: state.verdicts[client] for client in kept if client in state.verdicts}
    unheard = [
        client
        for client, one in said.items()
        if one.verdict == "untested"
        and (client in state.waiting or posterior[client] > SUSPECTED or (client in mute and client in spoilt))
    ]
    accused = [
        client
        for client, one in said.items()
        if one.verdict == "undecided" and one.posterior > 1.0 - policies.beta and policies.on_undecided != "keep"
    ]
    unheard.sort(key=lambda client: (client not in mute, -posterior[client]))
    accused.sort(key=lambda client: -said[client].posterior)
    waiting = [*accused, *unheard][: max(0, min((len(kept) - 1) // 2, len(kept) - least))]
    verdicts, told = dict(state.verdicts), []
    for client in waiting:
        if client not in state.waiting:
            why = "it has left, and " if client in mute else ""
            told.append(
                f"{client} does not train until a test tells: it is malicious with P = "
                f"{said[client].posterior:.2f}, by the sums that are not spoilt"
                if client in accused
                else f"{client} does not train until a test hears it: {why}all of its sums were spoilt, by itself with "
                f"P = {posterior[client]:.2f}"
            )
            verdicts[client] = replace(verdicts[client], reason=told[-1])
    return replace(state, waiting=frozenset(waiting), verdicts=MappingProxyType(verdicts)), tuple(told)


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
