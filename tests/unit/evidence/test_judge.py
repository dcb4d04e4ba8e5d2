"""Who is accused of those who stand out: each attack by itself, with a second opinion and harm."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from drawn_rounds import attack, decoded, drawn
from fedgt.design import named_design
from fedgt.evidence import (
    GradedDecoding,
    GradedEvidence,
    Push,
)
from fedgt.evidence.attacks import Attack
from fedgt.evidence.judge import CONFIRMED, HARM, judged
from fedgt.types import BoolArray, FloatArray


class Says(GradedEvidence):
    """A round with harm in it and a second opinion."""

    def __init__(self, opinion: Callable[[BoolArray, BoolArray], FloatArray], *, evenly_owned: bool = False) -> None:
        object.__setattr__(self, "opinion", opinion)
        object.__setattr__(self, "evenly_owned", evenly_owned)
        object.__setattr__(self, "account", None)
        object.__setattr__(self, "push", None)

    def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
        return 0.0


def in_it(*clients: int) -> Attack:
    members = np.isin(np.arange(15), clients)
    return Attack(members=members, posterior=np.where(members, 0.999, 0.001))


def test_each_attack_is_confirmed_with_the_others_set_aside() -> None:
    """Margins speak for {1, 4} and for {7, 8} as soon as they are asked about one by itself, and never for 11."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    suspected = np.isin(np.arange(15), [1, 4, 7, 8, 11])

    def opinion(sets: BoolArray, aside: BoolArray) -> FloatArray:
        alone = {(1, 4): 20.0, (7, 8): 16.0}
        worth = -9.0 * sets[:, 11] - 30.0 * (sets & aside).any(axis=1)
        for pair, nats in alone.items():
            others = next(list(other) for other in alone if other != pair)
            if aside[others].all():
                worth = worth + nats / 2 * sets[:, list(pair)].sum(axis=1)
        return np.asarray(worth, dtype=np.float64)

    attacks = [in_it(1, 4, 11), in_it(7, 8)]
    said = judged(replace(found, flagged=suspected, attacks=2), attacks, [Says(opinion)])
    assert np.flatnonzero(said.flagged).tolist() == [1, 4, 7, 8]
    assert np.flatnonzero(said.unconfirmed).tolist() == [11]
    assert np.flatnonzero(said.suspicious).tolist() == [11]
    # By the margins it is less likely malicious than not; of everybody else the sums are believed.
    assert said.believed[11] == max(said.log_odds[11], 0.0)
    assert said.believed[~said.suspicious].tolist() == said.log_odds[~said.suspicious].tolist()


def test_an_attack_that_honest_clients_could_have_sent_is_suspicious_and_the_others_are_accused() -> None:
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))

    class OwnersExplain(Says):
        """An owner of a single class is in the first set; it is known with the second one set aside."""

        def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> bool | None:
            assert not (suspects & aside).any()
            return bool(suspects[3]) and bool(aside[[1, 4]].all())

    def silent(sets: BoolArray, aside: BoolArray) -> FloatArray:
        return np.full(len(sets), np.nan)

    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 3, 4]), attacks=2)
    even = OwnersExplain(silent, evenly_owned=True)
    said = judged(flagged, [in_it(3), in_it(1, 4)], [even])
    assert np.flatnonzero(said.flagged).tolist() == [1, 4]
    assert np.flatnonzero(said.suspicious).tolist() == [3]
    assert "honest clients that own other classes send the like" in said.reason
    assert said.believed[3] == max(said.log_odds[3], 0.0)
    unknown = judged(flagged, [in_it(3), in_it(1, 4)], [Says(silent, evenly_owned=True)])
    assert np.flatnonzero(unknown.flagged).tolist() == [1, 3, 4]


def test_where_all_others_own_the_classes_evenly_no_more_than_one_client_is_excused() -> None:
    """Five who flip a pair of labels each could each be an owner of few classes; five owners among like clients are not."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    asked: list[list[int]] = []

    class Owners(Says):
        def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> bool | None:
            return bool(suspects[[3, 7]].any())

        def one_owner_at_most(self, suspects: BoolArray) -> bool:
            asked.append(np.flatnonzero(suspects).tolist())
            return self.evenly_owned

    def silent(sets: BoolArray, aside: BoolArray) -> FloatArray:
        return np.full(len(sets), np.nan)

    attacks = [in_it(3), in_it(7), in_it(1)]
    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 3, 7]), attacks=3)
    assert np.flatnonzero(judged(flagged, attacks, [Owners(silent, evenly_owned=True)]).flagged).tolist() == [1, 3, 7]
    assert asked == [[1, 3, 7]]
    said = judged(flagged, attacks, [Owners(silent)])
    assert np.flatnonzero(said.suspicious).tolist() == [3, 7]
    one = judged(replace(flagged, flagged=np.isin(np.arange(15), [1, 3])), attacks, [Owners(silent, evenly_owned=True)])
    assert np.flatnonzero(one.flagged).tolist() == [1]
    assert np.flatnonzero(one.suspicious).tolist() == [3]


def test_nobody_has_to_confirm_if_one_test_shows_that_classes_are_owned_evenly() -> None:
    """They are owned so in all rounds; in late ones noise looks like uneven shares, and margins say little."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))

    def doubts(sets: BoolArray, aside: BoolArray) -> FloatArray:
        return np.full(len(sets), CONFIRMED - 1.0)

    attacks, late = [in_it(1, 4, 9)], Says(doubts)
    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 4, 9]))
    doubted = judged(flagged, attacks, [late, late])
    assert not doubted.flagged.any()
    assert (doubted.log_odds[doubted.suspicious] < -CONFIRMED).all()
    assert doubted.believed[doubted.suspicious].tolist() == [1.0 - CONFIRMED] * 3  # no more than the margins say
    assert np.flatnonzero(judged(flagged, attacks, [Says(doubts, evenly_owned=True), late]).flagged).tolist() == [
        1,
        4,
        9,
    ]


def test_who_goes_far_needs_no_opinion_and_whoever_else_stands_out_does() -> None:
    """Among hospitals whoever permutes labels goes far backwards; honest ones were accused along with it."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    rows, way = named_design("graded-15x10-b").matrix.astype(np.float64), np.random.default_rng(0).normal(size=30)
    across = np.random.default_rng(1).normal(size=30)
    across -= way * (across @ way) / (way @ way)
    clients = np.tile(way, (15, 1))
    clients[[1, 4]] *= -3.0
    clients[7] += 9.0 * across
    updates = rows @ clients / rows.sum(axis=1, keepdims=True)

    def doubts(sets: BoolArray, aside: BoolArray) -> FloatArray:
        return np.zeros(len(sets))

    far = Says(doubts, evenly_owned=True)
    object.__setattr__(far, "push", Push.of_updates(updates, weights=rows, samples=np.ones(15)))
    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 4, 7]), attacks=2)
    said = judged(flagged, [in_it(1, 4), in_it(7)], [far])
    assert np.flatnonzero(said.flagged).tolist() == [1, 4]
    assert np.flatnonzero(said.unconfirmed).tolist() == [7]
    assert said.believed[7] == max(said.log_odds[7], 0.0)
    everybody = judged(flagged, [in_it(1, 4), in_it(7)], [Says(doubts, evenly_owned=True)])
    assert np.flatnonzero(everybody.flagged).tolist() == [1, 4, 7]


def test_more_suspects_than_can_be_asked_about_one_by_one_are_asked_about_together() -> None:
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    asked: list[int] = []

    def opinion(sets: BoolArray, aside: BoolArray) -> FloatArray:
        asked.append(len(sets))
        return np.full(len(sets), CONFIRMED)

    many = np.arange(15) < 13
    said = judged(replace(found, flagged=many), [in_it(*range(13))], [Says(opinion)])
    assert asked == [1]
    assert said.flagged.tolist() == many.tolist()


def test_margins_show_harm_that_no_loss_shows() -> None:
    """Attackers together raise a loss by more than the sum of each, so that losses fit their line badly."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 4, 9]))

    class Harmless(Says):
        def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
            return 1.0

    def judge(nats: float, *, evenly_owned: bool) -> GradedDecoding:
        def opinion(sets: BoolArray, aside: BoolArray) -> FloatArray:
            return np.asarray(np.where(sets[:, 1], nats, nats - 9.0) - 5.0 * sets[:, 9], dtype=np.float64)

        return judged(flagged, [in_it(1, 4, 9)], [Harmless(opinion, evenly_owned=evenly_owned)])

    for evenly_owned in (True, False):
        assert judge(CONFIRMED - 0.1, evenly_owned=evenly_owned).status == "harmless"
        assert judge(np.nan, evenly_owned=evenly_owned).status == "harmless"
    # Where classes are owned evenly, weights know best who it is.
    assert np.flatnonzero(judge(CONFIRMED, evenly_owned=True).flagged).tolist() == [1, 4, 9]
    assert np.flatnonzero(judge(CONFIRMED, evenly_owned=False).flagged).tolist() == [1, 4]


def test_who_goes_far_but_not_too_far_is_accused_if_both_losses_and_margins_speak() -> None:
    """Two honest hospitals of one kind went as far, and margins confirmed them; no loss rose with them."""
    found = decoded(drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24)))
    flagged = replace(found, flagged=np.isin(np.arange(15), [1, 4]))
    rows, way = named_design("graded-15x10-b").matrix.astype(np.float64), np.random.default_rng(0).normal(size=30)

    def judge(push: float, *, nats: float, p_value: float) -> GradedDecoding:
        clients = np.tile(way, (15, 1))
        clients[[1, 4]] *= 1.0 + push
        updates = rows @ clients / rows.sum(axis=1, keepdims=True)

        class Harms(Says):
            def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
                return p_value

        says = Harms(lambda sets, aside: nats * sets.sum(axis=1) / 2, evenly_owned=True)
        object.__setattr__(says, "push", Push.of_updates(updates, weights=rows, samples=np.ones(15)))
        return judged(flagged, [in_it(1, 4)], [says])

    assert np.flatnonzero(judge(-2.5, nats=6.0, p_value=HARM).flagged).tolist() == [1, 4]
    quiet = judge(-2.5, nats=6.0, p_value=HARM + 0.01)
    assert quiet.status == "harmless"
    assert np.flatnonzero(quiet.suspicious).tolist() == [1, 4]
    assert (quiet.believed[[1, 4]] >= 0.0).all()  # at most as likely malicious as not
    assert "margins" not in quiet.reason
    assert judge(-2.5, nats=-6.0, p_value=1.0).believed[1] == 3.0  # the best of the sets
    assert not judge(-2.5, nats=CONFIRMED - 0.1, p_value=0.0).flagged.any()
    # Whoever goes farther than honest clients ever do needs one of the two.
    assert np.flatnonzero(judge(-4.0, nats=CONFIRMED, p_value=1.0).flagged).tolist() == [1, 4]
    assert np.flatnonzero(judge(-4.0, nats=-6.0, p_value=HARM).flagged).tolist() == [1, 4]


def test_harm_in_one_of_two_rounds_is_harm() -> None:
    rng = np.random.default_rng(23)
    shifts = attack([1, 4, 9], size=2.0, rng=rng)
    without, with_harm = (drawn(shifts, rng=rng, harm=harm) for harm in (0.0, 3.0))
    assert decoded(without, without).status == "harmless"
    assert np.flatnonzero(decoded(without, with_harm).flagged).tolist() == [1, 4, 9]
