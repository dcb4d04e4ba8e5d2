"""One suite over every compiled decoder."""

from collections.abc import Callable

import numpy as np
import pytest

from fedgt.decode import (
    BeliefPropagation,
    CompiledDecoder,
    CountPrior,
    ExactDecoder,
    IndependentPrior,
    Prior,
    compile,
)
from fedgt.design import Design, from_matrix, named_design
from fedgt.errors import ContradictoryOutcomesError, ShapeError, SpecError
from fedgt.types import ErrorRates, Outcomes

RATES = ErrorRates(false_alarm=0.07, misdetection=0.03)
Make = Callable[[Design, ErrorRates, Prior], CompiledDecoder]

MAKERS: dict[str, Make] = {
    "exact": ExactDecoder,
    "belief-flooding": BeliefPropagation,
    "belief-serial": lambda design, rates, prior: BeliefPropagation(design, rates, prior, update="serial"),
}
# Groups without a cycle: here belief propagation is exact.
TREE = from_matrix([[1, 1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 0]])


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


@pytest.mark.parametrize(
    "prior",
    [CountPrior.uniform(4), IndependentPrior(prevalence=np.linspace(0.05, 0.4, 15))],
    ids=["count", "independent"],
)
def test_answers_have_the_promised_shapes_and_are_never_nan(make: Make, prior: Prior) -> None:
    design = named_design("bch-15x8")
    decoder = make(design, RATES, prior)
    outcomes = np.array([[1, 1, 0, 1, -1, 0, 0, 0], [0] * 8, [1] * 8, [-1] * 8], dtype=np.int8)
    batch = decoder.decode_batch(outcomes)
    width = len(prior.weights) if isinstance(prior, CountPrior) else 0
    assert batch.log_odds.shape == (4, 15)
    assert batch.count.shape == (4, width)
    assert batch.log_evidence.shape == batch.converged.shape == (4,)
    assert np.isfinite(batch.log_odds).all()
    assert np.isfinite(batch.log_evidence).all()
    if width:
        np.testing.assert_allclose(batch.count.sum(axis=1), 1.0)


def test_one_answer_is_the_row_of_a_batch(make: Make) -> None:
    decoder = make(named_design("bch-15x8"), RATES, CountPrior.uniform(5))
    outcomes = Outcomes.parse("1101?000")
    one, batch = decoder.decode(outcomes), decoder.decode_batch(np.tile(outcomes.values, (3, 1)))
    np.testing.assert_allclose(batch.log_odds, np.tile(one.log_odds, (3, 1)), atol=1e-12)
    assert one.status in ("exact", "converged", "not-converged")
    assert (one.status == "exact") == (decoder.method == "exact")
    assert decoder.cost


def test_without_outcomes_the_prior_comes_back(make: Make) -> None:
    prevalence = np.linspace(0.05, 0.4, 15)
    decoder = make(named_design("bch-15x8"), RATES, IndependentPrior(prevalence=prevalence))
    np.testing.assert_allclose(decoder.decode(Outcomes.parse("?" * 8)).malicious, prevalence, atol=1e-9)


def test_an_uninformative_screen_leaves_the_prior(make: Make) -> None:
    prevalence = np.linspace(0.05, 0.4, 15)
    rates = ErrorRates(false_alarm=0.3, misdetection=0.7)
    decoder = make(named_design("bch-15x8"), rates, IndependentPrior(prevalence=prevalence))
    np.testing.assert_allclose(decoder.decode(Outcomes.parse("11010010")).malicious, prevalence, atol=1e-6)


@pytest.mark.parametrize("text", ["111", "100", "010", "?01"])
def test_without_cycles_every_decoder_is_exact(make: Make, text: str) -> None:
    prior = IndependentPrior(prevalence=np.linspace(0.05, 0.6, 7))
    found, exact = make(TREE, RATES, prior), ExactDecoder(TREE, RATES, prior)
    outcomes = Outcomes.parse(text)
    np.testing.assert_allclose(found.decode(outcomes).log_odds, exact.decode(outcomes).log_odds, atol=1e-5)
    assert found.decode(outcomes).log_evidence == pytest.approx(exact.decode(outcomes).log_evidence, abs=1e-5)


def test_renaming_clients_renames_the_answer(make: Make) -> None:
    design, order = named_design("bch-15x8"), np.random.default_rng(2).permutation(15)
    prevalence = np.linspace(0.05, 0.4, 15)
    outcomes = Outcomes.parse("11010010")
    before = make(design, RATES, IndependentPrior(prevalence=prevalence)).decode(outcomes).log_odds
    renamed = from_matrix(design.matrix[:, order])
    after = make(renamed, RATES, IndependentPrior(prevalence=prevalence[order])).decode(outcomes).log_odds
    np.testing.assert_allclose(after, before[order], atol=1e-4)


def test_extreme_rates_give_finite_answers(make: Make) -> None:
    """Case 22 and 24."""
    decoder = make(named_design("cyclic-30x12"), ErrorRates.symmetric(1e-12), IndependentPrior.uniform(30, 1e-3))
    assert np.isfinite(decoder.decode(Outcomes.parse("110100000011")).log_odds).all()
    decoder = make(named_design("bch-15x8"), ErrorRates.symmetric(1e-300), IndependentPrior.uniform(15, 1e-15))
    assert np.isfinite(decoder.decode(Outcomes.parse("11010010")).log_odds).all()


def test_wrong_shapes_are_refused(make: Make) -> None:
    design = named_design("bch-15x8")
    decoder = make(design, RATES, CountPrior.uniform(3))
    with pytest.raises(ShapeError, match="3 outcomes for a design with 8 groups"):
        decoder.decode(Outcomes.parse("010"))
    with pytest.raises(ShapeError, match=r"0 \(negative\), 1"):
        decoder.decode_batch(np.full((1, 8), 2, dtype=np.int8))
    with pytest.raises(ShapeError, match="4 prevalences"):
        make(design, RATES, IndependentPrior.uniform(4, 0.1))


def test_contradictions_are_an_error_for_one_and_marked_in_a_batch() -> None:
    decoder = ExactDecoder(
        from_matrix([[1, 1, 0], [1, 1, 0]]), ErrorRates.symmetric(0.0), IndependentPrior.uniform(3, 0.2)
    )
    with pytest.raises(ContradictoryOutcomesError):
        decoder.decode(Outcomes.parse("10"))
    batch = decoder.decode_batch(np.array([[1, 0], [1, 1]], dtype=np.int8))
    assert batch.log_evidence[0] == -np.inf
    assert np.isnan(batch.log_odds[0]).all()
    assert not np.isnan(batch.log_odds[1]).any()


def test_belief_propagation_keeps_what_is_certain_and_finds_direct_contradictions() -> None:
    known = IndependentPrior(prevalence=np.array([0.0, 0.2]))
    found = BeliefPropagation(from_matrix([[1, 0]] * 3), ErrorRates.symmetric(1e-300), known).decode(
        Outcomes.parse("111")
    )
    assert found.log_odds[0] == np.inf
    assert found.malicious[1] == pytest.approx(0.2)
    twice = BeliefPropagation(
        from_matrix([[1, 1, 0], [1, 1, 0]]), ErrorRates.symmetric(0.0), IndependentPrior.uniform(3, 0.2)
    )
    with pytest.raises(ContradictoryOutcomesError):
        twice.decode(Outcomes.parse("10"))


def test_a_look_up_gives_what_decoding_gives() -> None:
    decoder = ExactDecoder(named_design("bch-15x8"), RATES, CountPrior.uniform(5))
    outcomes = ((np.arange(600)[:, None] >> np.arange(8)) & 1).astype(np.int8)
    looked_up = decoder.decode_batch(outcomes)
    for row in (0, 77, 255, 599):
        one = decoder.decode(Outcomes(values=outcomes[row]))
        np.testing.assert_allclose(looked_up.log_odds[row], one.log_odds, atol=1e-12)
        np.testing.assert_allclose(looked_up.count[row], one.count, atol=1e-12)


def test_the_method_is_chosen_by_name_and_reported() -> None:
    """Case 23: nothing is silently replaced."""
    design, prior = named_design("bch-15x8"), CountPrior.uniform(3)
    assert compile(design, RATES, prior).method == "exact"
    assert compile(design, RATES, prior, method="belief-propagation").method == "belief-propagation"
    assert compile(design, RATES, prior, method="auto").method == "exact"
    dense = from_matrix((np.random.default_rng(0).random((32, 60)) < 0.5).astype(int))
    wide = IndependentPrior.uniform(60, 0.1)
    assert compile(dense, RATES, wide, method="auto").method == "belief-propagation"
    with pytest.raises(SpecError, match="known are exact, belief-propagation, auto"):
        compile(design, RATES, prior, method="min-sum-prob")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="known are flooding, serial"):
        BeliefPropagation(design, RATES, prior, update="random")  # type: ignore[arg-type]


def test_belief_propagation_stays_close_to_exact_on_15x8() -> None:
    """A measured bound, not a theorem: the worst posterior error over all outcomes."""
    design, prior = named_design("bch-15x8"), IndependentPrior.uniform(15, 0.1)
    outcomes = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.int8)
    exact, loopy = (
        compile(design, RATES, prior, method=m).decode_batch(outcomes) for m in ("exact", "belief-propagation")
    )
    error = np.abs(1 / (1 + np.exp(exact.log_odds)) - 1 / (1 + np.exp(loopy.log_odds)))
    assert error.max() < 0.5
    assert error.mean() < 0.03
    flips = ((exact.log_odds < 0) != (loopy.log_odds < 0)).mean()
    assert flips < 0.03


def test_a_count_prior_alone_comes_back_from_belief_propagation() -> None:
    prior = CountPrior(weights=np.array([0.5, 0.3, 0.2]))
    found = BeliefPropagation(TREE, RATES, prior).decode(Outcomes.parse("???"))
    np.testing.assert_allclose(found.count, [0.5, 0.3, 0.2], atol=1e-6)
    np.testing.assert_allclose(found.malicious, np.full(7, 0.7 / 7), atol=1e-6)
    assert found.log_evidence == pytest.approx(0.0, abs=1e-6)
