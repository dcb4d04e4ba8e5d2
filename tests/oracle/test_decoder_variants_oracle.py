"""Counts, whole sets, ranked sets, stacked rounds, sampling: each against listing every set of malicious clients."""

from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgt.decode import (
    STRATEGIES,
    CountPrior,
    Estimator,
    IndependentPrior,
    Prior,
    Strategy,
    calibrate,
    calibrate_by_sampling,
    decision_table,
    decode,
    estimate_from_outcomes,
    explain,
    forward_backward,
    ranked_sets,
    stacked,
)
from fedgt.decode.compiled import all_outcomes
from fedgt.decode.frontier import make_schedule
from fedgt.decode.passes import _passes as passes_in  # the two arithmetics of one pass, compared below
from fedgt.decode.passes import forward_backward_passes
from fedgt.decode.semiring import LINEAR, LOG
from fedgt.design import Design, from_matrix, named_design
from fedgt.errors import ContradictoryOutcomesError, DesignError, ShapeError, SpecError
from fedgt.evidence import decode_sets
from fedgt.types import BoolArray, ErrorRates, FloatArray, Outcomes
from slow_cases import slow

RATES = ErrorRates(false_alarm=0.1, misdetection=0.05)


@st.composite
def designs(draw: st.DrawFn, clients: int = 7, groups: int = 4) -> Design:
    n = draw(st.integers(1, clients))
    rows = draw(st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=groups))
    return from_matrix(rows)


@st.composite
def priors(draw: st.DrawFn, n: int) -> Prior:
    if draw(st.booleans()):
        chances = st.sampled_from([0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
        return IndependentPrior(prevalence=np.array(draw(st.lists(chances, min_size=n, max_size=n))))
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=1, max_size=n + 1).filter(any))
    return CountPrior(weights=np.array(weights))


def prior_of(d: BoolArray, prior: Prior) -> float:
    if isinstance(prior, CountPrior):
        q = int(d.sum())
        return float(prior.weights[q]) / comb(len(d), q) if q < len(prior.weights) else 0.0
    return float(np.prod(np.where(d, prior.prevalence, 1 - prior.prevalence)))


def all_sets(n: int) -> list[BoolArray]:
    return [np.array(pattern, dtype=bool) for pattern in product((False, True), repeat=n)]


@settings(max_examples=80)
@given(st.data())
def test_ranked_sets_are_the_most_probable_ones_in_order(data: st.DataObject) -> None:
    design = data.draw(designs())
    prior = data.draw(priors(design.clients))
    t = data.draw(st.lists(st.sampled_from([0, 1, -1]), min_size=design.groups, max_size=design.groups))
    outcomes = Outcomes(values=np.array(t, dtype=np.int8))
    probabilities = []
    for d in all_sets(design.clients):
        weight = prior_of(d, prior)
        for row, value in zip(design.matrix, t, strict=True):
            hit = bool((row * d).sum())
            if value == 0:
                weight *= RATES.misdetection if hit else 1 - RATES.false_alarm
            elif value == 1:
                weight *= 1 - RATES.misdetection if hit else RATES.false_alarm
        probabilities.append((weight, tuple(np.flatnonzero(d).tolist())))
    total = sum(w for w, _ in probabilities)
    expected = sorted((w / total for w, _ in probabilities if w > 0), reverse=True)[:6]
    by_set = {clients: w / total for w, clients in probabilities}
    found = ranked_sets(design, outcomes, RATES, prior, count=6)
    np.testing.assert_allclose([one.probability for one in found], expected, rtol=1e-9)
    assert all(by_set[one.clients] == pytest.approx(one.probability) for one in found)
    assert len({one.clients for one in found}) == len(found)


class OrEvidence:
    """Binary outcomes as evidence about whole sets."""

    def __init__(self, design: Design, outcomes: Outcomes, rates: ErrorRates) -> None:
        self.design, self.outcomes, self.rates = design, outcomes, rates

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        hit = sets.astype(int) @ self.design.matrix.T.astype(int) > 0
        positive = self.outcomes.values == 1
        right = np.where(hit, 1 - self.rates.misdetection, 1 - self.rates.false_alarm)
        total: FloatArray = np.log(np.where(hit == positive, right, 1 - right)).sum(axis=1)
        return total


@pytest.mark.parametrize("prior", [CountPrior.uniform(5), IndependentPrior(prevalence=np.linspace(0.05, 0.3, 15))])
def test_scoring_whole_sets_equals_the_trellis(prior: Prior) -> None:
    design, outcomes = named_design("bch-15x8"), Outcomes.parse("11010010")
    found = decode_sets(OrEvidence(design, outcomes, RATES), clients=15, prior=prior)
    expected = forward_backward(design, outcomes, RATES, prior)
    np.testing.assert_allclose(found.log_odds, expected.log_odds, atol=1e-9)
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    best = ranked_sets(design, outcomes, RATES, prior, count=5)
    np.testing.assert_allclose([s.probability for s in found.best[:5]], [s.probability for s in best], rtol=1e-9)
    if isinstance(prior, CountPrior):
        np.testing.assert_allclose(found.count, expected.count, atol=1e-9)
        assert found.sets == sum(comb(15, q) for q in range(6))


def test_ties_between_sets_are_counted() -> None:
    design = from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]])
    found = decode_sets(
        OrEvidence(design, Outcomes.parse("10"), ErrorRates.symmetric(0.01)), clients=4, prior=CountPrior.uniform(1)
    )
    assert found.tied == 2
    assert {one.clients for one in found.best[:2]} == {(0,), (1,)}


def test_evidence_of_the_wrong_shape_is_refused() -> None:
    class Broken:
        def log_likelihood(self, sets: BoolArray) -> FloatArray:
            return np.zeros(3)

    for clients in (4, 40):
        with pytest.raises(ShapeError, match="one log-likelihood each"):
            decode_sets(Broken(), clients=clients, prior=IndependentPrior.uniform(clients, 0.1))


@settings(max_examples=60)
@given(st.data())
def test_a_joint_decoding_of_several_rounds_equals_the_sum_over_all_sets(data: st.DataObject) -> None:
    """Two rounds with other designs and other error rates, the same clients."""
    n = data.draw(st.integers(1, 6))
    rows = st.lists(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(any), min_size=1, max_size=3)
    rounds = [from_matrix(data.draw(rows)) for _ in range(2)]
    rates = [ErrorRates(false_alarm=0.1, misdetection=0.05), ErrorRates(false_alarm=0.02, misdetection=0.3)]
    design = stacked(rounds)
    each = [rates[r] for r in range(2) for _ in range(rounds[r].groups)]
    t = data.draw(st.lists(st.integers(0, 1), min_size=design.groups, max_size=design.groups))
    prior = data.draw(priors(n))
    joint = np.zeros((2, n))
    for d in all_sets(n):
        weight = prior_of(d, prior)
        for row, value, pair in zip(design.matrix, t, each, strict=True):
            right = 1 - pair.misdetection if (row * d).sum() else 1 - pair.false_alarm
            weight *= right if bool((row * d).sum()) == bool(value) else 1 - right
        joint[0] += weight * ~d
        joint[1] += weight * d
    found = forward_backward(design, Outcomes(values=np.array(t, dtype=np.int8)), each, prior)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found.log_odds, np.log(joint[0]) - np.log(joint[1]), atol=1e-9)


def test_stacking_needs_the_same_clients() -> None:
    with pytest.raises(DesignError, match=r"\[2, 3\] clients"):
        stacked([from_matrix([[1, 1]]), from_matrix([[1, 1, 1]])])
    with pytest.raises(ShapeError, match="2 pairs of error rates for 1 groups"):
        forward_backward(from_matrix([[1, 1]]), Outcomes.parse("1"), [RATES] * 2, IndependentPrior.uniform(2, 0.1))


@settings(max_examples=60)
@given(st.data())
def test_the_order_of_the_clients_and_the_arithmetic_change_nothing(data: st.DataObject) -> None:
    design = data.draw(designs())
    order = np.array(data.draw(st.permutations(range(design.clients))), dtype=np.int64)
    caps = np.ones(design.groups, dtype=np.int64)
    rng = np.random.default_rng(design.groups)
    likelihoods = [np.log(rng.uniform(0.01, 1, size=(3, 2))) for _ in range(design.groups)]
    chance = rng.uniform(0.01, 0.5, size=design.clients)
    stay, move = np.log(1 - chance), np.log(chance)
    base = forward_backward_passes(make_schedule(design.matrix, caps), likelihoods, stay, move)
    schedule = make_schedule(design.matrix, caps, order=order)
    for ring in (LINEAR, LOG):
        other = passes_in(schedule, likelihoods, stay, move, ring, None)
        np.testing.assert_allclose(other.log_odds, base.log_odds, atol=1e-9)
        np.testing.assert_allclose(other.log_evidence, base.log_evidence, atol=1e-9)


@pytest.mark.parametrize("beta", [*slow(0.0), 0.5, *slow(1.0)])
@pytest.mark.parametrize("rates", [RATES, *slow(ErrorRates.symmetric(0.0))])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deciding_in_batches_equals_deciding_one_by_one(strategy: Strategy, rates: ErrorRates, beta: float) -> None:
    design = named_design("bch-15x8")
    outcomes = all_outcomes(8)[::5]
    table = decision_table(design, outcomes, rates=rates, strategy=strategy, beta=beta)
    for row, values in enumerate(outcomes):
        try:
            flagged = decode(design, Outcomes(values=values), rates=rates, strategy=strategy, beta=beta).flagged
        except ContradictoryOutcomesError:
            flagged = np.zeros(15, dtype=np.bool_)
        np.testing.assert_array_equal(table[row], flagged, err_msg=str(values))


def test_a_table_without_rows_is_empty_and_erased_outcomes_are_refused() -> None:
    design = named_design("bch-15x8")
    empty = decision_table(design, np.empty((0, 8), dtype=np.int8), rates=RATES, strategy="bayes")
    assert empty.shape == (0, 15)
    with pytest.raises(SpecError, match="no erased"):
        decision_table(design, np.full((1, 8), -1, dtype=np.int8), rates=RATES, strategy="bayes")


def wide(clients: int, groups: int, size: int) -> Design:
    """Neighbours in groups: narrow for the decoder, too many groups to count sets."""
    matrix = np.zeros((groups, clients), dtype=np.uint8)
    for group, start in enumerate(np.linspace(0, clients - size, groups).round().astype(int)):
        matrix[group, start : start + size] = 1
    return from_matrix(matrix, name="wide")


@pytest.mark.parametrize(
    "strategy", ["bayes", "map", "count", pytest.param("delta", marks=pytest.mark.slow), "comp", "dd"]
)
def test_a_design_with_hundreds_of_groups_is_decoded_by_every_strategy(strategy: Strategy) -> None:
    design = wide(300, 150, 8)
    attackers = [17, 120, 251]
    outcomes = Outcomes(values=np.array(design.matrix[:, attackers].any(axis=1), dtype=np.int8))
    decoding = decode(design, outcomes, rates=ErrorRates.symmetric(0.01), strategy=strategy, largest=6)
    named = set(np.flatnonzero(decoding.flagged).tolist())
    assert named or strategy == "dd"  # which names only definite culprits
    assert all(min(abs(one - a) for a in attackers) <= 8 for one in named)
    if strategy in ("bayes", "map"):
        with pytest.raises(SpecError, match="give the largest number"):
            decode(design, outcomes, rates=RATES, strategy=strategy)
        prior = IndependentPrior.uniform(300, 0.01)
        assert decode(design, outcomes, rates=RATES, strategy=strategy, prior=prior).estimated_malicious is None


def test_a_dense_design_too_wide_for_counting_and_for_the_exact_decoder_is_decoded_by_name() -> None:
    design = from_matrix((np.random.default_rng(0).random((30, 60)) < 0.4).astype(int))
    outcomes = Outcomes(values=np.array(design.matrix[:, [3]].any(axis=1), dtype=np.int8))
    prior = IndependentPrior.uniform(60, 0.02)
    with pytest.raises(DesignError, match="belief propagation by name"):
        decode(design, outcomes, rates=RATES, prior=prior)
    decoding = decode(design, outcomes, rates=RATES, prior=prior, method="belief-propagation")
    assert np.flatnonzero(decoding.flagged).tolist() == [3]
    assert not decoding.exact
    counted = decode(design, outcomes, rates=RATES, largest=3, method="auto", strategy="count")
    assert counted.flagged[3]


def test_tied_sets_do_not_fan_out() -> None:
    """2^40 equally probable sets: the first few come at once."""
    design = from_matrix(np.ones((1, 40), dtype=int))
    found = ranked_sets(design, Outcomes.parse("?"), RATES, IndependentPrior.uniform(40, 0.5), count=3)
    assert len({one.clients for one in found}) == 3
    assert [one.probability for one in found] == pytest.approx([2.0**-40] * 3)


@pytest.mark.parametrize("clients", [1030, 1200])
def test_a_count_prior_over_a_thousand_clients_neither_overflows_nor_underflows(clients: int) -> None:
    design = wide(clients, 5, 20)
    prior = CountPrior(weights=np.array([0.0, 1.0]))
    posterior = forward_backward(design, Outcomes.parse("?????"), ErrorRates.symmetric(0.5), prior)
    np.testing.assert_allclose(posterior.malicious, 1 / clients, rtol=1e-9)
    assert posterior.log_evidence == pytest.approx(0.0, abs=1e-9)


def test_scores_hundreds_of_nats_apart_are_not_taken_for_certainty() -> None:
    class Against0:
        def log_likelihood(self, sets: BoolArray) -> FloatArray:
            return np.where(sets[:, 0], -900.0, 0.0)

    found = decode_sets(Against0(), clients=4, prior=IndependentPrior.uniform(4, 0.2))
    np.testing.assert_allclose(found.log_odds, [900 + np.log(4), np.log(4), np.log(4), np.log(4)])


@pytest.mark.parametrize("p", [1e-140, 1e-100, 1e-60, 1e-12])
def test_tiny_rates_and_tiny_priors_give_the_same_in_both_arithmetics(p: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        design = from_matrix(np.eye(6, 9, dtype=int) | (rng.random((6, 9)) < 0.4))
        schedule = make_schedule(design.matrix, np.ones(6, dtype=np.int64))
        chance = 10.0 ** rng.choice([-1, -8, -60], size=9)
        hit = rng.integers(0, 2, (2, 6))
        likelihoods = [np.log(np.where(hit[:, [g]] == 1, [[p, 1 - p]], [[1 - p, p]])) for g in range(6)]
        exact = passes_in(schedule, likelihoods, np.log1p(-chance), np.log(chance), LOG, None)
        chosen = forward_backward_passes(schedule, likelihoods, np.log1p(-chance), np.log(chance))
        np.testing.assert_allclose(chosen.log_odds, exact.log_odds, rtol=1e-9, atol=1e-9)


def test_an_explanation_at_p_0_is_infinite_and_not_a_huge_number() -> None:
    design = from_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    rows = explain(design, Outcomes.parse("110"), ErrorRates.symmetric(0.0), IndependentPrior.uniform(4, 0.2))
    flat = [value for row in rows for value in row]
    assert all(value in (np.inf, -np.inf) or abs(value) < 100 for value in flat)
    assert np.inf in flat
    with pytest.raises(ContradictoryOutcomesError):
        explain(from_matrix([[1, 1], [1, 1]]), Outcomes.parse("10"), ErrorRates.symmetric(0.0), CountPrior.uniform(1))


@pytest.mark.parametrize("strategy", ["count", "delta", "bayes", "map"])
@pytest.mark.parametrize("estimator", ["negatives", "outcomes"])
def test_no_strategy_hides_a_contradiction(strategy: Strategy, estimator: Estimator) -> None:
    design = from_matrix([[1, 1, 0], [1, 1, 0]])
    with pytest.raises(ContradictoryOutcomesError):
        decode(design, Outcomes.parse("10"), rates=ErrorRates.symmetric(0.0), strategy=strategy, estimator=estimator)


def test_the_estimate_from_all_outcomes_is_the_likeliest_number() -> None:
    design = named_design("bch-15x8")
    outcomes = all_outcomes(8)[::17]
    likelihood = np.zeros((6, len(outcomes)))
    for q in range(6):
        for chosen in combinations(range(15), q):
            hit = design.matrix[:, list(chosen)].any(axis=1)
            right = np.where(hit, 1 - RATES.misdetection, 1 - RATES.false_alarm)
            for row, values in enumerate(outcomes):
                likelihood[q, row] += float(np.prod(np.where(values == hit, right, 1 - right))) / comb(15, q)
    np.testing.assert_array_equal(estimate_from_outcomes(design, outcomes, RATES, largest=5), likelihood.argmax(axis=0))


@pytest.mark.parametrize("contaminated", [True, False])
def test_sampled_calibration_agrees_with_counting_within_its_standard_error(contaminated: bool) -> None:
    design = named_design("bch-15x8")
    exact = calibrate(design, RATES, 4, contaminated=contaminated)
    sampled = calibrate_by_sampling(
        design, RATES, 4, rng=np.random.default_rng(1), samples=4000, contaminated=contaminated
    )
    assert exact.standard_error == 0.0
    assert 0 < sampled.standard_error < 0.005
    assert sampled.objective == pytest.approx(exact.objective, abs=4 * sampled.standard_error)


def test_leaving_contaminated_sets_out_lowers_the_objective() -> None:
    design = named_design("bch-15x8")
    assert calibrate(design, RATES, 5, contaminated=False).objective < calibrate(design, RATES, 5).objective


def test_a_large_design_is_calibrated_by_sampling_and_says_so() -> None:
    rng = np.random.default_rng(0)
    matrix = np.zeros((20, 40), dtype=int)
    for row in range(20):
        matrix[row, 2 * row : 2 * row + 6] = 1
        matrix[row, rng.integers(0, 40)] = 1
    decoding = decode(from_matrix(matrix), Outcomes.parse("1" * 3 + "0" * 17), rates=RATES, strategy="delta", largest=6)
    assert "Delta from sampled sets" in decoding.reason


def test_impossible_requests_are_refused() -> None:
    design, outcomes = named_design("bch-15x8"), Outcomes.parse("11010010")
    with pytest.raises(SpecError, match="0 sets"):
        ranked_sets(design, outcomes, RATES, CountPrior.uniform(3), count=0)
    with pytest.raises(SpecError, match="unknown decoding method 'bp'"):
        decode(design, outcomes, rates=RATES, method="bp")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="unknown estimator"):
        decode(design, outcomes, rates=RATES, estimator="z")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="published tables are for 15 clients"):
        decode(from_matrix([[1, 1]]), Outcomes.parse("1"), rates=RATES, strategy="published-count")
    with pytest.raises(SpecError, match="all outcomes"):
        decode(design, Outcomes.parse("?1010010"), rates=RATES, strategy="published-delta", largest=5)
    with pytest.raises(ShapeError, match="allows 5 malicious clients of 3"):
        decode_sets(OrEvidence(design, outcomes, RATES), clients=3, prior=CountPrior.uniform(5))
