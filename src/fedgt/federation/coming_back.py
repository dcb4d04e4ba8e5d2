"""Who was left out by a test, and comes back because later tests would have named it and did not.

Only tests speak for a client: rounds in which a few sums were enough do not. Whoever was left out for another reason than
evidence, such as broken rules or silence, never comes back, nor does anybody who is left out a second time.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import MappingProxyType

from fedgt.federation.hearing import push_to_be_named
from fedgt.federation.round import ScreeningRound
from fedgt.federation.state import RunState
from fedgt.federation.trial import Trial
from fedgt.federation.verdicts import Verdict

_BY_EVIDENCE = ("exclude", "exclude (uncertain)", "suspicious")


def after_test(
    state: RunState, screening: ScreeningRound, news: Sequence[Verdict], *, after: int
) -> tuple[RunState, tuple[Verdict, ...]]:
    """Put on trial whom a test has named, and let back whom enough tests have cleared.

    Args:
        state: After the verdicts of the test.
        screening: The test.
        news: Its verdicts about clients that were there until then.
        after: How many tests in a row have to clear a client; 0 lets nobody back.

    Returns:
        The state; the verdicts about those who take part again from the next round on.
    """
    if not after:
        return state, ()
    number, judged = state.round, screening.grouping.clients
    trials = dict(state.trials)
    for client, hearing in screening.hearings.items():
        if hearing.says == "accused" or _doubted(client, state):
            trials[client] = replace(trials[client], cleared_in=())
        elif hearing.says == "cleared" and not screening.measured.finding.undecidable:  # a lost round clears nobody
            trials[client] = replace(trials[client], cleared_in=(*trials[client].cleared_in, number)[-after:])
    for one in news:
        if one.excluded and one.verdict in _BY_EVIDENCE and one.client not in trials:
            push = push_to_be_named(screening.measured, judged.index(one.client))
            trials[one.client] = Trial(named_in=number, push=push)
    back = {
        client: replace(trials[client], back_in=number)
        for client in screening.hearings
        if len(trials[client].cleared_in) >= after
    }
    verdicts = {client: _let_back(client, trial, screening, state.verdicts[client]) for client, trial in back.items()}
    after_it = replace(
        state,
        trials=MappingProxyType({**trials, **back}),
        excluded=state.excluded - set(back),
        verdicts=MappingProxyType({**state.verdicts, **verdicts}),
        # Earlier rounds were looked at without them.
        looks=() if back else state.looks,
        usual=() if back else state.usual,
    )
    return after_it, tuple(verdicts.values())


def _doubted(client: str, state: RunState) -> bool:
    """Whether a client may be behind faults that nobody else who was left out explains, or leaves again and again."""
    open_faults = state.suspicions.unexplained(state.excluded - {client})
    return client in state.silences.often or any(client in one for one in open_faults)


def _let_back(client: str, trial: Trial, screening: ScreeningRound, before: Verdict) -> Verdict:
    hearing = screening.hearings[client]
    return replace(
        before,
        verdict="keep",
        excluded=False,
        reason=f"{client} is back: left out in round {trial.named_in}, and cleared by the tests of rounds "
        f"{_listed(trial.cleared_in)}, which would have named it",
        posterior=hearing.posterior,
        log_odds=hearing.log_odds,
        round=trial.back_in,
    )


def _listed(rounds: Collection[int]) -> str:
    *first, last = (str(one) for one in rounds)
    return f"{', '.join(first)} and {last}" if first else last
