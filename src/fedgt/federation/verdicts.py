"""From findings to decisions: who is kept, who is excluded, and the reason in plain words."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedgt.errors import RunHaltedError
from fedgt.federation.findings import Finding
from fedgt.federation.settings import DecodeSettings, OnUntested
from fedgt.grouping import Grouping
from fedgt.record.verdict_words import VerdictName


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision about one client.

    Attributes:
        client: Its id.
        verdict: One of the words of `fedgt.record.verdict_words.MEANINGS`.
        excluded: Whether it is left out from now on.
        reason: Why, in plain words.
        posterior: P(malicious | t); NaN when nothing was tested.
        log_odds: log P(benign | t) - log P(malicious | t) in nats; NaN when nothing was tested.
        groups: Its groups, 0-based.
        round: The round in which this was decided; 0 if nobody has said.

    Examples:
        >>> from fedgt.federation import Verdict
        >>> verdict = Verdict(
        ...     client="ada",
        ...     verdict="exclude",
        ...     excluded=True,
        ...     reason="an example",
        ...     posterior=0.99,
        ...     log_odds=-4.6,
        ...     groups=(0, 3),
        ... )
        >>> verdict.excluded
        True
    """

    client: str
    verdict: VerdictName
    excluded: bool
    reason: str
    posterior: float
    log_odds: float
    groups: tuple[int, ...]
    round: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """The decision about everybody.

    Attributes:
        verdicts: One per client, in column order of the design.
        halt: Whether training must stop here, by policy.
        reason: What was decided overall, in plain words.

    Examples:
        >>> from fedgt import DecodeSettings, ErrorRates, Grouping, Outcomes, RunHaltedError, named_design
        >>> from fedgt.decode import decode
        >>> from fedgt.federation import exclude, from_outcomes
        >>> design, outcomes = named_design("bch-15x8"), Outcomes.parse("11111111")
        >>> grouping = Grouping(design=design, clients=tuple(f"site-{j:02d}" for j in range(15)))
        >>> finding = from_outcomes(grouping, outcomes, decode(design, outcomes, rates=ErrorRates.symmetric(0.05)))
        >>> exclusion = exclude(grouping, finding, DecodeSettings())
        >>> exclusion.halt  # no group is clean, and who is kept cannot be asked for
        True
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
    finding: Finding,
    policies: DecodeSettings,
    *,
    last: bool = True,
    silent: Mapping[str, str] | None = None,
    faulty: Collection[int] = (),
    doubt: bool = False,
    round: int = 0,
) -> Exclusion:
    """Turn what a test found into exclusions; there is no silent "keep everybody".

    Args:
        grouping: Who sat where, with the members that the sums were really over.
        finding: What the test says.
        policies: What follows where nobody can be cleared, where clients are suspicious or undecided, and where they were
            not tested.
        last: Whether no further test follows: then `test-again` decides at minimum expected cost.
        silent: Client -> what happened, for those who took no part in the test through their own doing.
        faulty: The groups whose sums are not used because a member has broken the rules: to be in one is no reason to be
            left out, and if nothing can be compared without them, the run does not stop.
        doubt: Whether sums of this test or those before were spoilt. Those that are left may make an honest client as
            suspicious as whoever spoilt the others: then nobody is left out at minimum expected cost.
        round: The round of the test, for the record.

    Examples:
        >>> from fedgt import DecodeSettings, ErrorRates, Grouping, Outcomes, named_design
        >>> from fedgt.decode import decode
        >>> from fedgt.federation import exclude, from_outcomes
        >>> design, outcomes = named_design("bch-15x8"), Outcomes.parse("11010000")
        >>> grouping = Grouping(design=design, clients=tuple(f"site-{j:02d}" for j in range(15)))
        >>> finding = from_outcomes(grouping, outcomes, decode(design, outcomes, rates=ErrorRates.symmetric(0.05)))
        >>> [one.client for one in exclude(grouping, finding, DecodeSettings()).verdicts if one.excluded]
        ['site-01']
    """
    follow = not finding.undecidable or (finding.accuses and policies.on_undecidable == "follow-decoder")
    waits = policies.on_undecided == "test-again" and not last
    decides = policies.on_undecided != "keep" and not waits and not doubt
    settled = not (waits and finding.undecided.any())
    verdicts = tuple(
        _verdict(
            grouping,
            finding,
            policies,
            column,
            follow=follow,
            decides=decides,
            settled=settled,
            silent=silent or {},
            faulty=faulty,
            round=round,
        )
        for column in range(grouping.design.clients)
    )
    nobody_left = all(v.excluded for v in verdicts)
    end = "; nobody is left, so the run stops" if nobody_left else ""
    if finding.undecidable:
        # Whoever spoils so many sums that nothing can be compared must not be able to stop the run.
        spoilt = bool(faulty) and bool(np.isnan(finding.posterior).all())
        # A further test may explain what this one could not: honest clients look so now and then.
        further = waits and bool(finding.undecided.any())
        stop = policies.on_undecidable == "stop" and not spoilt and not further
        action = (
            "the run stops here"
            if stop
            else "the decoder's accusations are followed"
            if follow
            else "another test round is asked for"
            if further
            else "everybody is kept"
        )
        why = "because members have spoilt the sums" if spoilt else "as the policy says"
        return Exclusion(
            verdicts=verdicts,
            halt=stop or nobody_left,
            reason=f"{finding.reason}; {action}, {why}{end}",
        )
    again = "; another test round is asked for" if finding.undecided.any() and waits else ""
    named = ", ".join(v.client for v in verdicts if v.excluded) or "nobody"
    odd = ", ".join(v.client for v in verdicts if v.verdict == "suspicious")
    said = f"{finding.reason}; left out: {named}" + (f"; suspicious: {odd}" if odd else "")
    # A further test may tell: before it nobody has to look.
    stop = bool(odd) and policies.on_suspicious == "stop" and not again
    asks = "; the run stops, as the policy says, so that somebody looks at those who are suspicious" if stop else ""
    return Exclusion(verdicts=verdicts, halt=nobody_left or stop, reason=f"{said}{again}{end}{asks}")


def _verdict(
    grouping: Grouping,
    finding: Finding,
    policies: DecodeSettings,
    column: int,
    *,
    follow: bool,
    decides: bool,
    settled: bool,
    silent: Mapping[str, str],
    faulty: Collection[int],
    round: int,
) -> Verdict:
    client, groups = grouping.clients[column], grouping.design.groups_of(column)
    name, reason = finding.said[column]
    left_out = name in ("exclude", "exclude (uncertain)")
    if not finding.heard[column]:
        # Nobody is singled out when nobody could be tested.
        policy = policies.on_untested if follow else "keep"
        spoilt = client not in silent and any(group in faulty for group in groups)
        name, reason, left_out = _spoilt() if spoilt else _untested(client, groups, policy, silent)
    elif not follow:
        name, reason, left_out = "undecided", finding.unclear[column], False
    elif finding.suspicious[column]:
        left_out = policies.on_suspicious == "exclude" and settled
        reason += f"; {'left out' if left_out else 'kept'}, as the policy says"
    elif finding.undecided[column]:
        evades = client in silent and policies.on_untested != "keep"
        left_out = evades or (decides and bool(finding.flagged[column]))
        name = "exclude (uncertain)" if left_out else name
        reason += (
            f"; took no part in the further test: {silent[client]}; left out, as the policy says"
            if evades
            else "; left out at minimum expected cost"
            if left_out
            else "; kept for now"
        )
    return Verdict(
        client=client,
        verdict=name,
        excluded=left_out,
        reason=reason,
        posterior=float(finding.posterior[column]),
        log_odds=float(finding.log_odds[column]),
        groups=groups,
        round=round,
    )


def _spoilt() -> tuple[VerdictName, str, bool]:
    return "untested", "none of its groups has an outcome, because members have broken the rules; kept, untested", False


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
    return "untested", f"{reason}; {'left out' if left_out else 'kept'}, as the policy says", left_out
