"""What the sums of a test say about those who are judged: by themselves, and with those of tests that were left open."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fedgt.evidence import GradedDecoding, label_under_attack
from fedgt.federation.findings import from_posterior
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.look import Look
from fedgt.federation.measure import Measured, measured, suspects
from fedgt.federation.open_tests import MOST, OpenTests, both_ways
from fedgt.federation.participants import Validation
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.federation.views import graded_of
from fedgt.grouping import Grouping
from fedgt.types import SetEvidence


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """What a test says.

    Attributes:
        grouping: Who is judged.
        found: What is said about them.
        alone: What the sums of this test say by themselves; the same object as `found` where no other test is added.
        open_tests: This test and those that it was judged together with, for a next one; None where it has nothing to add.
    """

    grouping: Grouping
    found: Measured
    alone: Measured
    open_tests: OpenTests | None


def judge(
    look: Look,
    seats: Grouping,
    means: GroupMeans,
    validation: Validation,
    screen: ScreenSettings,
    decoding: DecodeSettings,
    *,
    earlier: Sequence[SetEvidence] = (),
    heard: Mapping[str, int] | None = None,
    behind: Sequence[Collection[str]] = (),
    round: int,
    seed: int,
) -> Judgement:
    """Judge everybody who is not set aside.

    Args:
        look: How the test is held and judged.
        seats: With the members that each opened sum is really over.
        means: What the sums give to compare, with everybody.
        validation: The server's validation set.
        screen: How groups are tested.
        decoding: How suspects are named.
        earlier: Evidence that is added in any case; with `heard` as in `measured`.
        heard: Client -> in how many sums of that evidence it is.
        behind: Sets of clients with at least one in each that has broken the rules. Such a test is judged by itself.
        round: Its number.
        seed: Of the clusters' starting positions.
    """
    before = look.open_tests
    if before is not None and (behind or not before.fits(seats.clients, look.aside) or len(before.rounds) >= MOST):
        before = None
    control = partial(look.controlled, nobody=decoding.nobody)
    judged, left = look.judged(seats, means)
    alone = measured(
        left, judged, validation, screen, decoding, earlier, heard, seed, behind, control, look.features, look.grown
    )
    if not look.standing or alone.evidence is None or behind:
        return Judgement(grouping=judged, found=alone, alone=alone, open_tests=None)
    number = {client: int(count) for client, count in zip(judged.clients, alone.finding.heard, strict=True)}
    if before is None:
        begun = OpenTests(
            clients=judged.clients, evidence=(alone.evidence,), rounds=(round,), heard=number, error=look.error
        )
        return Judgement(grouping=judged, found=alone, alone=alone, open_tests=begun)
    evidence = alone.evidence
    if before.clients != judged.clients:
        # Who was named by one of these tests is judged along.
        wider, more = replace(look, aside=look.aside - set(before.clients)).judged(seats, means)
        wide = graded_of(more, validation, screen, look.features, look.grown).evidence
        if wider.clients != before.clients or wide is None:
            return Judgement(grouping=judged, found=alone, alone=alone, open_tests=before)
        evidence = wide
    after = before.and_then(evidence, round, number)

    def together() -> GradedDecoding:
        prior = decoding.model_copy(update={"nobody": after.nobody})
        found = suspects(after.evidence, len(after.clients), screen=screen, decoding=prior)
        return replace(look, error=after.error).controlled(found, after.nobody)

    assert isinstance(alone.decoding, GradedDecoding)  # noqa: S101 - there is graded evidence
    decoded = both_ways(alone.decoding, after, judged.clients, together)
    if decoded is alone.decoding:
        return Judgement(grouping=judged, found=alone, alone=alone, open_tests=after)
    found = replace(
        alone,
        finding=from_posterior(judged, alone.compared, decoded, before.heard),
        decoding=decoded,
        best=decoded.best,
        label=label_under_attack(alone.evidence.damage, decoded.posterior) if decoded.flagged.any() else None,
    )
    return Judgement(grouping=judged, found=found, alone=alone, open_tests=after)
