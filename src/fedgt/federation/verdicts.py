"""From accusations to decisions: who is kept, who is excluded, and the reason in plain words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fedgt.decode import UNDECIDABLE, Decoding
from fedgt.errors import RunHaltedError
from fedgt.evidence import GradedDecoding
from fedgt.federation.settings import OnUndecidable, OnUndecided, OnUntested
from fedgt.grouping import Grouping
from fedgt.types import ERASED, NEGATIVE, POSITIVE, BoolArray, Outcomes

VerdictName = Literal["keep", "exclude", "undecided", "untested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision about one client.

    Attributes:
        client: Its id.
        verdict: `keep`, `exclude`, `undecided` (the tests cannot tell) or `untested` (in no group with an outcome).
        excluded: Whether it is left out from now on.
        reason: Why, in plain words.
        posterior: P(malicious | t); NaN when nothing was tested.
        log_odds: log P(benign | t) - log P(malicious | t) in nats; NaN when nothing was tested.
        groups: Its groups, 0-based.
    """

    client: str
    verdict: VerdictName
    excluded: bool
    reason: str
    posterior: float
    log_odds: float
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """The decision about everybody.

    Attributes:
        verdicts: One per client, in column order of the design.
        halt: Whether training must stop here, by policy.
        reason: What was decided overall, in plain words.
    """

    verdicts: tuple[Verdict, ...]
    halt: bool
    reason: str

    @property
    def kept(self) -> tuple[str, ...]:
        """Ids of the clients that go on, sorted.

        Raises:
            RunHaltedError: If the run stops here: then nobody goes on.
        """
        if self.halt:
            raise RunHaltedError(self.reason)
        return tuple(sorted(v.client for v in self.verdicts if not v.excluded))

    @property
    def excluded(self) -> tuple[str, ...]:
        """Ids of the clients that are left out, sorted."""
        return tuple(sorted(v.client for v in self.verdicts if v.excluded))


def exclude(
    grouping: Grouping,
    outcomes: Outcomes,
    decoding: Decoding,
    *,
    on_undecidable: OnUndecidable = "stop",
    on_untested: OnUntested = "exclude-silent",
    silent: Mapping[str, str] | None = None,
) -> Exclusion:
    """Turn the decoder's accusations into exclusions.

    Args:
        grouping: Who sat where, with the members that the sums were really over.
        outcomes: What the tests said, for the reasons.
        decoding: Whom the decoder accuses.
        on_undecidable: The policy for outcomes from which nobody can be cleared. There is no silent "keep everybody".
        on_untested: The policy for clients without a tested group.
        silent: Client -> what happened, for those who took no part in the test through their own doing.

    """
    undecidable = decoding.status in UNDECIDABLE
    follow = not undecidable or on_undecidable == "follow-decoder"
    if undecidable and on_undecidable != "follow-decoder":
        on_untested = "keep"  # nobody is singled out when nobody could be tested
    verdicts = tuple(
        _verdict(grouping, outcomes, decoding, column, follow=follow, on_untested=on_untested, silent=silent or {})
        for column in range(grouping.design.clients)
    )
    nobody_left = all(v.excluded for v in verdicts)
    last = "; nobody is left, so the run stops" if nobody_left else ""
    if not undecidable:
        return Exclusion(verdicts=verdicts, halt=nobody_left, reason=decoding.reason + last)
    action = {
        "stop": "the run stops here, as the policy says",
        "keep-all": "everybody is kept, as the policy says",
        "follow-decoder": "the decoder's accusations are followed, as the policy says",
    }[on_undecidable]
    return Exclusion(
        verdicts=verdicts, halt=on_undecidable == "stop" or nobody_left, reason=f"{decoding.reason}; {action}{last}"
    )


def exclude_graded(
    grouping: Grouping,
    tested: BoolArray,
    decoding: GradedDecoding,
    *,
    last: bool,
    on_undecided: OnUndecided = "test-again",
    on_undecidable: OnUndecidable = "stop",
    on_untested: OnUntested = "exclude-silent",
    silent: Mapping[str, str] | None = None,
    heard: Mapping[str, int] | None = None,
) -> Exclusion:
    """Turn a posterior from graded evidence into exclusions.

    Args:
        grouping: Who sat where, with the members that the sums were really over.
        tested: bool[groups]: which groups are in the evidence.
        decoding: The posterior.
        last: Whether this is the last test round: then `test-again` decides at minimum expected cost.
        on_undecided: The policy for clients that the evidence does not decide.
        on_undecidable: The policy where the groups differ and nobody can be named, or nothing could be compared.
        on_untested: The policy for clients without a tested group, and for undecided ones who fell silent in this test.
        silent: Client -> what happened, for those who took no part in the test through their own doing.
        heard: Client -> in how many sums of earlier test rounds it was, whose evidence is in the posterior too.

    """
    undecidable = decoding.status in ("unexplained", "no-evidence")
    if undecidable:
        on_untested = "keep"  # nobody is singled out when nobody could be tested
    wait = on_undecided == "test-again" and not last
    verdicts = tuple(
        _graded_verdict(
            grouping,
            tested,
            decoding,
            column,
            open_ones="keep" if wait or on_undecided == "keep" else "decide",
            on_untested=on_untested,
            silent=silent or {},
            before=(heard or {}).get(grouping.clients[column], 0),
        )
        for column in range(grouping.design.clients)
    )
    nobody_left = all(v.excluded for v in verdicts)
    end = "; nobody is left, so the run stops" if nobody_left else ""
    if undecidable:
        stop = on_undecidable == "stop"
        action = "the run stops here, as the policy says" if stop else "everybody is kept, as the policy says"
        return Exclusion(verdicts=verdicts, halt=stop, reason=f"{decoding.reason}; {action}")
    again = "; another test round is asked for" if decoding.undecided.any() and wait else ""
    named = ", ".join(v.client for v in verdicts if v.excluded) or "nobody"
    return Exclusion(verdicts=verdicts, halt=nobody_left, reason=f"{decoding.reason}; left out: {named}{again}{end}")


def _graded_verdict(
    grouping: Grouping,
    tested: BoolArray,
    decoding: GradedDecoding,
    column: int,
    *,
    open_ones: Literal["keep", "decide"],
    on_untested: OnUntested,
    silent: Mapping[str, str],
    before: int,
) -> Verdict:
    client = grouping.clients[column]
    groups = grouping.design.groups_of(column)
    heard = before + (int(tested[list(groups)].sum()) if groups else 0)
    posterior = float(decoding.posterior[column])
    left_out = False
    name: VerdictName
    if decoding.status in ("unexplained", "no-evidence"):
        name, reason = ("undecided", decoding.reason) if heard else ("untested", "none of its groups could be compared")
    elif heard == 0:
        name, reason, left_out = _untested(client, groups, on_untested, silent)
    elif decoding.undecided[column]:
        likely = bool(decoding.flagged[column])
        name = "undecided"
        evades = client in silent and on_untested != "keep"
        left_out = evades or (open_ones == "decide" and likely)
        rivals = _rivals(grouping, decoding, column)
        reason = (
            f"malicious with probability {posterior:.2f}"
            + (f"; {rivals} would explain the same sums" if rivals else "")
            + (
                f"; took no part in the further test: {silent[client]}; left out, as the policy says"
                if evades
                else "; left out at minimum expected cost"
                if left_out
                else "; kept for now"
            )
        )
    elif decoding.status == "harmless" and posterior > 1 / 2:
        name = "undecided"
        reason = (
            "it differs from the others along with a few more, but no loss rises with them; kept, as no harm is shown"
        )
    elif decoding.unconfirmed[column]:
        name = "undecided"
        reason = "it differs from the others along with a few more, as a client that owns other classes does; kept"
    elif posterior > 1 / 2 and not decoding.flagged[column]:
        name = "undecided"
        reason = "it would be malicious if anybody were, but it is not sure enough that anybody is; kept"
    elif decoding.flagged[column]:
        name = "exclude"
        reason = f"the {heard} sums it is in lie where its poison puts them (probability {_percent(posterior)})"
    else:
        name = "keep"
        reason = f"nothing in the {heard} sums it is in points to it (malicious with probability {_percent(posterior)})"
    return Verdict(
        client=client,
        verdict=name,
        excluded=name == "exclude" or left_out,
        reason=reason,
        posterior=posterior,
        log_odds=float(decoding.log_odds[column]),
        groups=groups,
    )


def _percent(probability: float) -> str:
    if probability > 0.9999:
        return "above 99.99 %"
    return "below 0.01 %" if probability < 0.0001 else f"{100 * probability:.2f} %"


def _rivals(grouping: Grouping, decoding: GradedDecoding, column: int) -> str:
    """Clients that are malicious in the most probable set without this client, and not in the most probable one with it."""
    with_it = next((one.clients for one in decoding.best if column in one.clients), None)
    without = next((one.clients for one in decoding.best if column not in one.clients), None)
    if with_it is None or without is None:
        return ""
    others = [j for j in without if j not in with_it]
    return " and ".join(grouping.clients[j] for j in others) if others else "its absence"


def _untested(
    client: str, groups: tuple[int, ...], on_untested: OnUntested, silent: Mapping[str, str]
) -> tuple[VerdictName, str, bool]:
    """Verdict, reason, and whether it is left out, for a client without a tested group."""
    reason = (
        f"took no part in the test: {silent[client]}"
        if client in silent
        else ("in no group" if not groups else "none of its groups has an outcome")
    )
    left_out = on_untested == "exclude" or (on_untested == "exclude-silent" and client in silent)
    return (
        "untested",
        reason + ("; left out, as the policy says" if left_out else "; kept, as the policy says"),
        left_out,
    )


def _verdict(
    grouping: Grouping,
    outcomes: Outcomes,
    decoding: Decoding,
    column: int,
    *,
    follow: bool,
    on_untested: OnUntested,
    silent: Mapping[str, str],
) -> Verdict:
    client = grouping.clients[column]
    groups = grouping.design.groups_of(column)
    values = [int(outcomes.values[g]) for g in groups]
    positive, negative, erased = values.count(POSITIVE), values.count(NEGATIVE), values.count(ERASED)
    heard = f"{positive} of its {positive + negative} tested groups positive" + (
        f", {erased} not opened" if erased else ""
    )
    flagged = bool(decoding.flagged[column])
    left_out = False
    name: VerdictName
    if positive + negative == 0:
        name, reason, left_out = _untested(client, groups, on_untested, silent)
    elif not follow:
        name, reason = "undecided", f"{heard}, and {decoding.reason}"
    elif flagged:
        name, reason = "exclude", heard
        if column in decoding.tied:
            others = ", ".join(grouping.clients[j] for j in decoding.tied if j != column)
            reason += f"; as suspicious as {others}: the lower column was taken"
    else:
        name, reason = "keep", heard
        if column in decoding.tied:
            others = ", ".join(grouping.clients[j] for j in decoding.tied if decoding.flagged[j])
            reason += f"; as suspicious as {others}, which had the lower column"
    return Verdict(
        client=client,
        verdict=name,
        excluded=name == "exclude" or left_out,
        reason=reason,
        posterior=float(decoding.posterior[column]),
        log_odds=float(decoding.log_odds[column]),
        groups=groups,
    )
