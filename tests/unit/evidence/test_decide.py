"""Naming malicious clients from graded evidence, on data drawn from the model itself."""

from collections.abc import Callable
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy.special import expit

from fedgt.defaults import UNDECIDED
from fedgt.design import named_design
from fedgt.errors import SpecError
from fedgt.evidence import (
    GradedDecoding,
    GradedEvidence,
    GradedScreen,
    Push,
    decode_graded,
    graded_screen,
    sparse_prior,
)
from fedgt.evidence.attacks import Attack
from fedgt.evidence.judge import CONFIRMED, judged
from fedgt.evidence.sets import MAX_SETS, decode_sets
from fedgt.experiment import make_spec
from fedgt.experiment.simulation import simulate
from fedgt.federation import DecodeSettings
from fedgt.types import BoolArray, FloatArray
from slow_cases import slow

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
CLASSES, INPUTS = 4, 60


def drawn(
    shifts: np.ndarray | float,
    *,
    rng: np.random.Generator,
    samples: np.ndarray | None = None,
    rows: np.ndarray = DESIGN,
    harm: float = 3.0,
) -> GradedScreen:
    """One test round: client j's layer is a common one, its own shift, and noise of variance 1 / n_j."""
    n = np.full(15, 100.0) if samples is None else samples
    clients = shifts + rng.normal(size=(15, CLASSES, INPUTS)) * (100.0 / n)[:, None, None] ** 0.5
    shares = rows / rows.sum(axis=1, keepdims=True)
    means = np.tensordot(shares, clients, axes=1) + rng.normal(size=(CLASSES, INPUTS))
    hurt = shares @ np.any(np.broadcast_to(shifts, clients.shape), axis=(1, 2))
    losses = 0.5 + 0.05 * rng.normal(size=(len(rows), CLASSES)) + hurt[:, None] * np.array([harm, 0.0, 0.0, 0.0])
    return graded_screen(means, losses, weights=rows, samples=n, erased=np.zeros(len(rows), dtype=np.bool_))


def attack(malicious: list[int], *, size: float, rng: np.random.Generator) -> np.ndarray:
    shifts = np.zeros((15, CLASSES, INPUTS))
    towards = rng.normal(size=INPUTS)
    shifts[malicious, 0], shifts[malicious, 1] = size * towards, -size * towards
    return shifts


def decoded(*screens: GradedScreen) -> GradedDecoding:
    evidence = [one.evidence for one in screens if one.evidence is not None]
    return decode_graded(evidence, clients=15, largest=7)


@pytest.mark.parametrize("malicious", [[3], [0, 9], [1, 5, 14], [2, 3, 8, 10, 13], [0, 1, 4, 6, 9, 11, 12]])
def test_every_attacker_and_nobody_else_is_named(malicious: list[int]) -> None:
    rng = np.random.default_rng(len(malicious))
    found = decoded(drawn(attack(malicious, size=2.0, rng=rng), rng=rng))
    assert np.flatnonzero(found.flagged).tolist() == malicious
    assert (found.status, found.attacks) == ("decided", 1)
    assert int(found.count.argmax()) == len(malicious)
    assert found.against_nobody > 5


def test_more_attackers_than_were_considered_are_looked_for_where_these_explain_nothing() -> None:
    rng = np.random.default_rng(5)
    malicious, benign = (
        drawn(shifts, rng=rng).evidence for shifts in (attack([2, 3, 8, 10, 13], size=6.0, rng=rng), 0)
    )
    assert malicious is not None
    assert benign is not None
    few = decode_graded([malicious], clients=15, largest=3)
    assert not few.flagged.any()
    wide = decode_graded([malicious], clients=15, largest=3, widest=7)
    assert np.flatnonzero(wide.flagged).tolist() == [2, 3, 8, 10, 13]
    assert len(wide.count) == 8
    too_few = decode_graded([malicious], clients=15, largest=2, widest=3)
    assert too_few.status == "unexplained"
    assert too_few.undecided.all(), "nobody is cleared where no set explains a line that somebody makes"
    nobody = decode_graded([benign], clients=15, largest=3, widest=7)
    assert not nobody.flagged.any()
    assert len(nobody.count) == 4, "nothing calls for a wider search"


class _Scores:
    """Evidence that scores the sets that it is given, and has no line: as margins do."""

    def __init__(self, nats: Callable[[BoolArray], FloatArray]) -> None:
        self.nats = nats

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        return self.nats(sets)


@pytest.mark.parametrize("strength", [0.0, 1.5, 4.0, 30.0])
def test_sets_too_large_to_be_scored_are_as_likely_as_their_prior_and_nobody_say(strength: float) -> None:
    """The oracle scores every minority; those of more than two clients get what nobody gets."""
    rng = np.random.default_rng(3)
    of_client = rng.normal(size=9) * strength

    def nats(sets: BoolArray) -> FloatArray:
        sizes = sets.sum(axis=1)
        result: FloatArray = np.where(sizes <= 2, sets @ of_client, 0.0)
        return result

    exact = decode_sets(_Scores(nats), clients=9, prior=sparse_prior(9, 4))
    said = decode_graded([_Scores(nats)], clients=9, largest=2, widest=4)
    at_the_limit = len(exact.best[0].clients) == 2  # then nobody is cleared: there may be a third
    expected = np.maximum(expit(-exact.log_odds), UNDECIDED if at_the_limit else 0.0)
    np.testing.assert_allclose(said.posterior, expected, rtol=1e-9)


def test_who_might_be_in_a_set_that_was_not_scored_is_not_cleared() -> None:
    """Twenty of 50 attackers were missed by margins, which consider four, and 47 clients read as cleared."""
    silent = _Scores(lambda sets: np.zeros(len(sets)))
    few = decode_graded([silent], clients=25, largest=3, widest=12)
    assert few.undecided.all()
    assert "more than 3 malicious clients could not be looked for" in few.reason
    assert not few.flagged.any()
    by_word = decode_graded([silent], clients=25, largest=3)
    assert "could not be looked for" not in by_word.reason
    three = np.isin(np.arange(25), [2, 5, 9])
    loud = _Scores(lambda sets: np.where((sets == three).all(axis=1), 40.0, 0.0))
    found = decode_graded([loud], clients=25, largest=4, widest=12)
    np.testing.assert_array_equal(found.flagged, three)
    assert not found.undecided.any()
    assert "could not be looked for" not in found.reason
    # As many as were considered: nothing says that there is no fourth.
    full = decode_graded([loud], clients=25, largest=3, widest=12)
    np.testing.assert_array_equal(full.flagged, three)
    np.testing.assert_array_equal(full.undecided, ~three)
    assert "more than 3 malicious clients could not be looked for" in full.reason


def test_a_line_that_no_scored_set_explains_clears_nobody_though_it_is_not_loud() -> None:
    """Ten of 50 clients with few pictures make a line no louder than that of honest ones."""
    rng = np.random.default_rng(6)
    screen = drawn(attack([2, 3, 8, 10, 13], size=1.2, rng=rng), rng=rng).evidence
    assert screen is not None
    found = decode_graded([screen], clients=15, largest=2, widest=7)
    assert 3.0 < screen.log_likelihood(np.zeros((1, 15), dtype=np.bool_))[0] < 40.0
    assert len(found.count) == 3
    assert found.undecided.all()


def test_two_attacks_on_different_labels_are_both_found() -> None:
    rng = np.random.default_rng(5)
    shifts = attack([2, 6, 9], size=3.0, rng=rng)
    shifts[[4, 11], 2] = 3.0 * rng.normal(size=INPUTS)
    shifts[[4, 11], 3] = -shifts[[4, 11], 2]
    found = decoded(drawn(shifts, rng=rng))
    assert np.flatnonzero(found.flagged).tolist() == [2, 4, 6, 9, 11]
    assert found.attacks == 2


@pytest.mark.parametrize("malicious", [[4, 9, 13], *slow([0, 3, 7, 10, 14])])
def test_attackers_that_each_have_a_label_of_their_own_are_all_found(malicious: list[int]) -> None:
    """They make no common line: each is found when those that are known are set aside."""
    rng = np.random.default_rng(len(malicious))
    classes = 2 * len(malicious)
    clients = rng.normal(size=(15, classes, INPUTS))
    for turn, client in enumerate(malicious):
        push = 4.0 * rng.normal(size=INPUTS)
        clients[client, 2 * turn] += push
        clients[client, 2 * turn + 1] -= push
    shares = DESIGN / DESIGN.sum(axis=1, keepdims=True)
    losses = 0.5 + 0.02 * rng.normal(size=(len(DESIGN), classes))
    losses[:, [2 * turn for turn in range(len(malicious))]] += 3.0 * shares[:, malicious]
    screen = graded_screen(
        np.tensordot(shares, clients, axes=1),
        losses,
        weights=DESIGN,
        samples=np.full(15, 100.0),
        erased=np.zeros(len(DESIGN), dtype=np.bool_),
    )
    found = decoded(screen)
    assert np.flatnonzero(found.flagged).tolist() == malicious
    assert len(malicious) - 1 <= found.attacks <= len(malicious)
    assert found.more == (found.attacks < len(malicious))  # the last one is more likely than not, and not quite sure


def test_where_something_is_left_nobody_is_cleared_and_nothing_is_certain() -> None:
    """One clear attack, and another that is too faint to be named: it says so."""
    said = 0
    for seed in range(4, 8):
        rng = np.random.default_rng([60, seed])
        shifts = attack([2, 6, 9], size=3.0, rng=rng)
        shifts[[4, 11], 2] = 1.3 * rng.normal(size=INPUTS)
        shifts[[4, 11], 3] = -shifts[[4, 11], 2]
        found = decoded(drawn(shifts, rng=rng))
        assert {2, 6, 9} <= set(np.flatnonzero(found.flagged).tolist()) <= {2, 4, 6, 9, 11}
        if found.more:
            said += 1
            assert "more is going on than these sets explain" in found.reason
            assert (found.posterior >= 0.02 - 1e-9).all()
            assert (found.undecided | found.flagged).all()
    assert said >= 2
    for seed in range(2):  # and one attack by itself leaves nothing
        rng = np.random.default_rng([61, seed])
        assert not decoded(drawn(attack([2, 6, 9], size=3.0, rng=rng), rng=rng)).more


@pytest.mark.parametrize(("nats", "named"), [(2.0, False), (4.0, True)])
def test_a_further_attack_that_is_not_sure_accuses_nobody(
    nats: float, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run left five honest hospitals out, for an attack whose odds were less than those that a first one needs."""
    screen = drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24))
    sets = decode_sets(
        _Scores(lambda sets: 50.0 * sets[:, 12] - 99.0 * (sets.sum(axis=1) > 1)), clients=15, prior=sparse_prior(15, 7)
    )
    nobody = float(expit(-nats))
    further = replace(sets, count=np.append(nobody, (1.0 - nobody) * sets.count[1:] / sets.count[1:].sum()))
    monkeypatch.setattr("fedgt.evidence.decide.with_further", lambda evidence, attacks, largest: (attacks, further))
    said = decoded(screen)
    assert said.more
    assert said.posterior[12] > 1 / 2
    assert bool((said.flagged | said.suspicious)[12]) == named
    assert np.flatnonzero(said.flagged)[:3].tolist() == [1, 4, 9]


def test_attackers_of_different_strength_and_sample_counts_of_one_to_twenty_are_named() -> None:
    rng = np.random.default_rng(6)
    shifts = attack([1, 7, 12], size=3.0, rng=rng)
    shifts[7] *= 0.6
    found = decoded(drawn(shifts, rng=rng, samples=np.linspace(10, 200, 15)))
    assert np.flatnonzero(found.flagged).tolist() == [1, 7, 12]


def test_a_group_that_is_not_finite_is_left_out_and_named() -> None:
    rng = np.random.default_rng(7)
    clients = attack([3, 8], size=3.0, rng=rng) + rng.normal(size=(15, CLASSES, INPUTS))
    means = np.tensordot(DESIGN / DESIGN.sum(axis=1, keepdims=True), clients, axes=1)
    means[4, 0, 0] = np.nan
    losses = np.ones((10, CLASSES)) + (DESIGN[:, [3, 8]].sum(axis=1) / DESIGN.sum(axis=1))[:, None]
    screen = graded_screen(
        means, losses, weights=DESIGN, samples=np.full(15, 50.0), erased=np.zeros(10, dtype=np.bool_)
    )
    assert "group 4 (features not finite)" in screen.reason
    assert not screen.tested[4]
    assert np.flatnonzero(decoded(screen).flagged).tolist() == [3, 8]


def test_a_dead_model_is_no_difference_and_accuses_nobody() -> None:
    screen = graded_screen(
        np.zeros((10, CLASSES, INPUTS)),
        np.ones((10, CLASSES)),
        weights=DESIGN,
        samples=np.full(15, 50.0),
        erased=np.zeros(10, dtype=np.bool_),
    )
    assert screen.status == "no-difference"
    assert decoded(screen).status == "no-evidence"


def test_a_tie_is_said_with_its_sets_and_splits_the_posterior() -> None:
    """15 x 8 cannot tell some sets apart: the posterior of the clients in question is neither near 0 nor near 1."""
    rows = named_design("bch-15x8").matrix.astype(np.float64)
    undecided = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        malicious = rng.choice(15, 5, replace=False).tolist()
        found = decoded(drawn(attack(malicious, size=4.0, rng=rng), rng=rng, rows=rows))
        if found.undecided.any():
            undecided += 1
            assert found.status == "undecided"
            assert len(found.best) > 1
            assert found.best[1].probability > 0.05
    assert undecided > 0


def test_evidence_of_two_rounds_adds_up() -> None:
    rng = np.random.default_rng(9)
    shifts = attack([2, 5], size=0.7, rng=rng)
    one, two = drawn(shifts, rng=rng), drawn(shifts, rng=rng)
    assert decoded(one, two).against_nobody > max(decoded(one).against_nobody, decoded(two).against_nobody)


def test_the_sparse_prior_gives_half_to_nobody_and_refuses_what_is_no_probability() -> None:
    prior = sparse_prior(15, 7)
    assert prior.weights[0] == pytest.approx(0.5)
    assert prior.weights.sum() == pytest.approx(1.0)
    with pytest.raises(SpecError, match="between 0 and 1"):
        sparse_prior(15, 7, nobody=1.0)
    with pytest.raises(SpecError, match="1 to 15"):
        sparse_prior(15, 16)
    with pytest.raises(SpecError, match="beta"):
        decode_graded([], clients=15, largest=7, beta=2.0)


@pytest.mark.parametrize(("clients", "considered"), [(2, 1), (15, 7), (21, 10), (22, 8), (50, 8)])
def test_every_minority_of_21_clients_is_considered_and_eight_of_more(clients: int, considered: int) -> None:
    assert DecodeSettings().largest_graded(clients) == considered
    assert DecodeSettings(max_malicious=12).largest_graded(25) == 12
    if clients <= 21:
        assert sum(comb(clients, q) for q in range(considered + 1)) <= MAX_SETS


def test_more_attackers_than_clients_or_than_margins_can_tell_are_refused_before_the_first_round() -> None:
    with pytest.raises(SpecError, match=r"at most 31 malicious clients of 30: at most 30 can be searched"):
        DecodeSettings(max_malicious=31).largest_graded(30)
    margins = {"screen": {"features": "margins"}, "decode": {"max_malicious": 12}}
    spec = make_spec({"privacy": 4, "federation": {"clients": 30}, **margins})
    with pytest.raises(SpecError, match=r"at most 5 can be searched: lower decode\.max_malicious"):
        simulate(spec)


def test_clients_that_differ_without_harm_are_not_accused() -> None:
    """A second camera: three clients move along one line, and no class gets worse with them."""
    shifts = attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21))
    harmful, harmless, helpful = (
        decoded(drawn(shifts, rng=np.random.default_rng(24), harm=harm)) for harm in (3.0, 0.0, -3.0)
    )
    assert np.flatnonzero(harmful.flagged).tolist() == [1, 4, 9]
    assert harmless.status == "harmless"
    assert "no validation loss rises with them" in harmless.reason
    assert np.flatnonzero(harmless.suspicious).tolist() == [1, 4, 9]
    assert not (harmless.flagged | harmless.undecided).any()
    assert not helpful.flagged.any()


def test_suspects_whom_a_second_opinion_does_not_confirm_are_not_accused() -> None:
    """As where they own other classes. What counts is the mean of the rounds that can say anything."""
    screen = drawn(attack([1, 4, 9], size=2.0, rng=np.random.default_rng(21)), rng=np.random.default_rng(24), harm=3.0)
    evidence = screen.evidence
    assert isinstance(evidence, GradedEvidence)

    def says(*nats: float, rate: float = 0.0) -> GradedScreen:
        """Of sets with client 1 the first number, else the second; less `rate` for every other member."""

        def opinion(sets: BoolArray, aside: BoolArray) -> FloatArray:
            with_one = sets[:, 1]
            found: FloatArray = np.where(with_one, nats[0], nats[-1]) - rate * (sets.sum(axis=1) - with_one)
            return found

        return replace(screen, evidence=replace(evidence, opinion=opinion))

    def named(*rounds: GradedScreen) -> list[int]:
        return np.flatnonzero(decoded(*rounds).flagged).tolist()

    unconfirmed = decoded(says(CONFIRMED - 0.1))
    assert unconfirmed.status == "unconfirmed"
    assert "the margins of the validation set do not confirm" in unconfirmed.reason
    assert "screen.features = 'margins'" in unconfirmed.reason
    assert not (unconfirmed.flagged | unconfirmed.undecided).any()
    assert np.flatnonzero(unconfirmed.unconfirmed).tolist() == [1, 4, 9]
    assert decoded(says(CONFIRMED - 3.0), says(CONFIRMED + 2.0)).status == "unconfirmed"
    # Whoever adds to what speaks for the set is named, who takes away from it is not.
    assert named(says(CONFIRMED, rate=-5.0)) == [1, 4, 9]
    assert named(says(CONFIRMED, 0.0, rate=5.0)) == [1]
    assert np.flatnonzero(decoded(says(CONFIRMED, 0.0, rate=5.0)).unconfirmed).tolist() == [4, 9]
    # A round that has nothing to say does not count, and where none has, nobody needs to be confirmed.
    assert named(says(np.nan), says(CONFIRMED, rate=-5.0)) == named(screen, screen) == [1, 4, 9]
    assert named(screen, says(0.0)) == []


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


def test_harm_in_one_of_two_rounds_is_harm() -> None:
    rng = np.random.default_rng(23)
    shifts = attack([1, 4, 9], size=2.0, rng=rng)
    without, with_harm = (drawn(shifts, rng=rng, harm=harm) for harm in (0.0, 3.0))
    assert decoded(without, without).status == "harmless"
    assert np.flatnonzero(decoded(without, with_harm).flagged).tolist() == [1, 4, 9]
