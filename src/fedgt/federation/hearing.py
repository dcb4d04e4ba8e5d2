"""Whether a client that a test has named would be named again: it is judged once more, by the sums of a later test.

An excluded client goes on in its groups, so that a test that opens all sums has its updates, too. They are made to cancel
before the others are judged. Here they are not: one excluded client at a time is judged like everybody else, with all other
excluded ones set aside. So nothing that another excluded client sends speaks for it or against it, and the verdicts about
the others stay what they are. No sum is opened for it.

A test clears a client only if it would have named it. How hard a client must push to be named is found by simulation, for
the sums that were really opened; the test that has named the client is the measure.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from fedgt.evidence import GradedDecoding, MarginEvidence
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.look import Look
from fedgt.federation.measure import Measured
from fedgt.federation.sums import Taken
from fedgt.federation.trial import Trial
from fedgt.grouping import Grouping
from fedgt.planning import smallest_named_shift

AS_STRONG = 1.5
"""A test may need so many times the push of the one that has named the client, and still clear it: with some clients set
aside every test sees a little less."""

Says = Literal["cleared", "accused", "not said"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """What one test says about an excluded client.

    Attributes:
        says: Whether nothing points to it although the test would have seen it; whether something does, or it was not
            there; or neither.
        reason: Why, in plain words.
        posterior: P(malicious | this test), where the prior is that of a first test; NaN where it was not judged.
        log_odds: log P(benign) - log P(malicious), in nats.
        push: As in `Trial`, of this test; infinite where it was not asked.
    """

    says: Says
    reason: str
    posterior: float = float("nan")
    log_odds: float = float("nan")
    push: float = float("inf")


def heard_again(
    look: Look,
    seats: Grouping,
    means: GroupMeans,
    *,
    taken: Taken,
    present: Collection[str],
    judge: Callable[[GroupMeans, Grouping], Measured],
    undecided: float,
) -> dict[str, Hearing]:
    """What a test says about clients that an earlier one has named.

    Args:
        look: How the test was judged; who is on trial is set aside in it.
        seats: With the members that each opened sum is really over.
        means: What the sums give to compare, with everybody.
        taken: The sums.
        present: Who takes part.
        judge: As the first test of a run is judged: with its prior, and without the control of false alarms of many tests.
            Both speak against the client.
        undecided: From which posterior on a client is undecided.
    """
    suspects = {client for fault in taken.sums.faults for client in fault.suspects}
    left = {client for one in taken.sums.sums for client in one.dropped} | set(taken.silent)
    found = {}
    for client, trial in sorted(look.trials.items()):
        if client not in present:
            found[client] = Hearing(says="accused", reason="it was not there")
        elif client in left:
            found[client] = Hearing(says="accused", reason="it has left a sum")
        elif client in suspects:
            found[client] = Hearing(says="accused", reason="it may have broken the rules of the sums")
        else:
            judged, without = replace(look, aside=look.aside - {client}).judged(seats, means)
            found[client] = _heard(judge(without, judged), judged, client, trial, undecided)
    return found


def _heard(found: Measured, judged: Grouping, client: str, trial: Trial, undecided: float) -> Hearing:
    column = judged.clients.index(client)
    if found.evidence is None or found.finding.undecidable or not found.finding.heard[column]:
        return Hearing(says="not said", reason=f"nothing could be said: {found.finding.reason}")
    posterior, log_odds = float(found.finding.posterior[column]), float(found.finding.log_odds[column])
    word, reason = found.finding.said[column]
    if word != "keep" or not posterior < undecided:
        return Hearing(says="accused", reason=reason, posterior=posterior, log_odds=log_odds)
    if found.finding.flagged.any() or found.finding.suspicious.any():
        return Hearing(says="not said", reason="others stand out", posterior=posterior, log_odds=log_odds)
    push = push_to_be_named(found, column)
    if not push <= AS_STRONG * trial.push < float("inf"):
        return Hearing(
            says="not said",
            reason="the test would have seen less than the one that has named it",
            posterior=posterior,
            log_odds=log_odds,
            push=push,
        )
    return Hearing(says="cleared", reason=reason, posterior=posterior, log_odds=log_odds, push=push)


def push_to_be_named(found: Measured, column: int) -> float:
    """By how much a client would have had to push alone to be named in 9 of 10 draws; infinite where that is not known."""
    evidence, decoding = found.evidence, found.decoding
    if evidence is None or not isinstance(decoding, GradedDecoding):
        return float("inf")
    if isinstance(evidence, MarginEvidence):
        shifts, directions = evidence.shifts, None
    else:
        line = evidence.hypotheses[0].shift
        shifts, directions = line.shifts, line.effective_features
    least = smallest_named_shift(
        shifts, directions=directions, attackers=1, largest=len(decoding.count) - 1, who=column
    )
    return float("inf") if least is None else least
