"""Naming malicious clients from graded evidence, on data drawn from the model itself."""

from collections.abc import Callable
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy.special import expit

from drawn_rounds import CLASSES, DESIGN, INPUTS, attack, decoded, drawn
from fedgt.defaults import UNDECIDED
from fedgt.design import named_design
from fedgt.errors import SpecError
from fedgt.evidence import (
    GradedEvidence,
    GradedScreen,
    decode_graded,
    graded_screen,
    sparse_prior,
)
from fedgt.evidence.judge import CONFIRMED
from fedgt.evidence.sets import MAX_SETS, decode_sets
from fedgt.experiment import make_spec
from fedgt.experiment.simulation import simulate
from fedgt.federation import DecodeSettings
from fedgt.types import BoolArray, FloatArray
from slow_cases import slow


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
