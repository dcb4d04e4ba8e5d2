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
    state: RunState, clients: Collection[str], policies: DecodeSettings, *, least: int
) -> tuple[RunState, tuple[str, ...]]:
    """Whoever may have spoilt all of its sums of the tests does not train until a test hears it: it is not left out.

    At most a minority waits, and the others are enough for a sum, so that nobody stops a run like this.

    Args:
        state: With the faults and the verdicts of the round.
        clients: Everybody.
        policies: With `on_untested = "keep"` nobody waits.
        least: The fewest clients of a training sum.

    Returns:
        The state; who waits from now on, in words.
    """
    kept = sorted(set(clients) - state.excluded)
    untested = [client for client in kept if client in state.verdicts and state.verdicts[client].verdict == "untested"]
    waiting: tuple[str, ...] = ()
    if untested and state.suspicions.sets and policies.on_untested != "keep":
        posterior = state.suspicions.posterior(kept, state.excluded)
        suspects = sorted((one for one in untested if posterior[one] > SUSPECTED), key=lambda one: -posterior[one])
        waiting = tuple(suspects[: max(0, min((len(kept) - 1) // 2, len(kept) - least))])
    new = [client for client in waiting if client not in state.waiting]
    told = tuple(
        f"{client} does not train until a test hears it: all of its sums were spoilt, by itself with "
        f"P = {posterior[client]:.2f}"
        for client in new
    )
    verdicts = dict(state.verdicts)
    for client, said in zip(new, told, strict=True):
        verdicts[client] = replace(verdicts[client], reason=said)
    return replace(state, waiting=frozenset(waiting), verdicts=MappingProxyType(verdicts)), told


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
