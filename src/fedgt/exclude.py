"""From accusations to decisions: who is kept, who is excluded, and the reason in plain words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from fedgt.decode import UNDECIDABLE, Decoding
from fedgt.errors import SpecError
from fedgt.grouping import Grouping
from fedgt.types import ERASED, NEGATIVE, POSITIVE, Outcomes

VerdictName = Literal["keep", "exclude", "undecided", "untested"]

OnUndecidable = Literal["stop", "keep-all", "follow-decoder"]
ON_UNDECIDABLE: tuple[OnUndecidable, ...] = get_args(OnUndecidable)
"""What to do when nobody can be cleared (all groups positive, all tested clients flagged, no group tested, or outcomes that
contradict each other): stop the run (default), go on with everybody, or do what the decoder says, as the paper's pipeline
would."""

OnUntested = Literal["keep", "exclude-silent", "exclude"]
ON_UNTESTED: tuple[OnUntested, ...] = get_args(OnUntested)
"""What becomes of a client without a tested group. Falling silent in the test round must not be a way around the test, so
the default leaves out those who were absent or dropped out themselves; those whose groups were lost through others stay."""


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
        """Ids of the clients that go on, sorted."""
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

    Raises:
        SpecError: If a policy is unknown.
    """
    for policy, known in ((on_undecidable, ON_UNDECIDABLE), (on_untested, ON_UNTESTED)):
        if policy not in known:
            raise SpecError(f"unknown policy {policy!r}; known are {', '.join(known)}")
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
        name = "untested"
        reason = (
            f"took no part in the test: {silent[client]}"
            if client in silent
            else ("in no group" if not groups else "none of its groups has an outcome")
        )
        left_out = on_untested == "exclude" or (on_untested == "exclude-silent" and client in silent)
        reason += "; left out, as the policy says" if left_out else "; kept, as the policy says"
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
