"""Strategies, their degenerate inputs, and numbers at the edge of floating point."""

import numpy as np
import pytest

from fedgt.decode import CountPrior, IndependentPrior, calibrate, decode, estimate_malicious, forward_backward
from fedgt.design import from_matrix, identity, named_design
from fedgt.errors import CalibrationError, ContradictoryOutcomesError, DesignError, ShapeError, SpecError
from fedgt.types import ErrorRates, Outcomes

DESIGN = named_design("bch-15x8")
RATES = ErrorRates.symmetric(0.05)
DENSE = from_matrix((np.random.default_rng(0).random((30, 40)) < 0.5).astype(int))


def outcomes_of(malicious: list[int]) -> Outcomes:
    return Outcomes(values=np.array(DESIGN.matrix[:, malicious].any(axis=1), dtype=np.int8))


@pytest.mark.parametrize("strategy", ["delta", "bayes"])
@pytest.mark.parametrize("attacker", range(15))
def test_one_attacker_is_named_by_noise_free_outcomes(strategy: str, attacker: int) -> None:
    decoding = decode(DESIGN, outcomes_of([attacker]), rates=RATES, strategy=strategy)  # type: ignore[arg-type]
    assert np.flatnonzero(decoding.flagged).tolist() == [attacker]
    assert decoding.status == "decided"


def test_count_accuses_one_too_many_when_a_single_attacker_sits_in_four_groups() -> None:
    """Four negative groups of eight are likelier with two attackers than with one: the paper's estimate, not a fault."""
    decoding = decode(DESIGN, outcomes_of([7]), rates=RATES, strategy="count")
    assert decoding.estimated_malicious == 2
    assert decoding.flagged[7]
    assert int(decoding.flagged.sum()) == 2


@pytest.mark.parametrize("strategy", ["count", "delta"])
def test_an_estimate_of_zero_flags_nobody_without_running_the_decoder(strategy: str) -> None:
    decoding = decode(DESIGN, Outcomes.parse("00000000"), rates=RATES, strategy=strategy)  # type: ignore[arg-type]
    assert decoding.estimated_malicious == 0
    assert not decoding.flagged.any()
    assert decoding.status == "nobody-estimated"
    assert (decoding.log_odds == np.inf).all()


@pytest.mark.parametrize("strategy", ["count", "delta", "bayes"])
def test_all_outcomes_positive_is_a_status_of_its_own(strategy: str) -> None:
    """Case 38."""
    decoding = decode(DESIGN, Outcomes.parse("11111111"), rates=RATES, strategy=strategy)  # type: ignore[arg-type]
    assert decoding.status == "all-positive"
    assert "nobody can be cleared" in decoding.reason


def test_everybody_flagged_is_a_status_of_its_own() -> None:
    decoding = decode(identity(3), Outcomes.parse("110"), rates=ErrorRates.symmetric(0.4), strategy="bayes", beta=0.99)
    assert decoding.flagged.all()
    assert decoding.status == "all-flagged"


def test_with_every_group_erased_nobody_was_tested() -> None:
    decoding = decode(DESIGN, Outcomes.parse("????????"), rates=RATES)
    assert decoding.status == "no-outcomes"
    assert not decoding.flagged.any()
    assert np.isnan(decoding.posterior).all()


def test_a_client_in_no_tested_group_is_never_flagged() -> None:
    design = from_matrix([[1, 1, 0], [0, 1, 0]])
    for strategy in ("count", "delta", "bayes"):
        prior = IndependentPrior(prevalence=np.array([0.1, 0.1, 0.99]))
        decoding = decode(design, Outcomes.parse("01"), rates=RATES, strategy=strategy, prior=prior)
        assert not decoding.flagged[2]


def test_ties_of_count_go_to_the_lower_client_numbers_and_are_reported() -> None:
    design = from_matrix([[1, 1, 0, 0], [0, 0, 1, 1]])  # clients 0 and 1 cannot be told apart
    decoding = decode(design, Outcomes.parse("10"), rates=RATES, strategy="count", largest=1)
    assert np.flatnonzero(decoding.flagged).tolist() == [0]
    assert decoding.tied == (0, 1)


def test_the_prevalence_is_the_estimate_over_n_unless_given() -> None:
    outcomes = outcomes_of([2, 9])
    estimate = estimate_malicious(DESIGN, outcomes).malicious or 0
    implied = decode(DESIGN, outcomes, rates=RATES, strategy="count")
    stated = decode(DESIGN, outcomes, rates=RATES, strategy="count", prior=IndependentPrior.uniform(15, estimate / 15))
    other = decode(DESIGN, outcomes, rates=RATES, strategy="count", prior=IndependentPrior.uniform(15, 0.4))
    np.testing.assert_array_equal(implied.log_odds, stated.log_odds)
    assert (implied.log_odds != other.log_odds).all()


def test_an_outcome_that_no_number_explains_takes_the_nearest_expected_count() -> None:
    design = from_matrix([[1, 1, 1, 1], [1, 1, 1, 1]])  # both groups are always equal: one negative is impossible
    estimate = estimate_malicious(design, Outcomes.parse("10"), largest=2)
    assert not estimate.possible
    assert estimate.malicious == 0  # expected negatives 2, 0, 0: equally near, the smallest is taken
    decoding = decode(design, Outcomes.parse("10"), rates=RATES, strategy="count", largest=2)
    assert "the nearest was taken" in decoding.reason


def test_with_erasures_the_estimate_uses_the_rows_present() -> None:
    outcomes = Outcomes.parse("1101?000")
    kept = [i for i in range(8) if i != 4]
    reduced = DESIGN.restricted(kept)
    assert estimate_malicious(DESIGN, outcomes) == estimate_malicious(reduced, Outcomes.parse("1101000"))


# Case 24 and 22: nothing underflows, infinite only where certain.


@pytest.mark.parametrize("p", [1e-300, 1e-12, 0.0])
def test_tiny_error_rates_give_finite_log_odds_where_nothing_is_certain(p: float) -> None:
    posterior = forward_backward(
        DESIGN, Outcomes.parse("10000000"), ErrorRates.symmetric(p), IndependentPrior.uniform(15, 1e-15)
    )
    assert not np.isnan(posterior.log_odds).any()
    if p == 0.0:  # members of negative groups are certainly benign, and client 0 is the only explanation
        assert np.flatnonzero(posterior.log_odds == -np.inf).tolist() == [0]
        assert (posterior.log_odds[1:] == np.inf).all()
    else:
        assert np.isfinite(posterior.log_odds).all()


def test_30x12_at_low_prevalence_and_low_error_rates_is_finite() -> None:
    """Case 22."""
    posterior = forward_backward(
        named_design("cyclic-30x12"),
        Outcomes.parse("110100000011"),
        ErrorRates.symmetric(1e-12),
        IndependentPrior.uniform(30, 1e-3),
    )
    assert np.isfinite(posterior.log_odds).all()


def test_contradicting_outcomes_say_so() -> None:
    design = from_matrix([[1, 1, 0], [1, 1, 0]])
    with pytest.raises(ContradictoryOutcomesError, match="contradict each other"):
        forward_backward(design, Outcomes.parse("10"), ErrorRates.symmetric(0.0), IndependentPrior.uniform(3, 0.2))


def test_a_known_client_stays_known() -> None:
    prior = IndependentPrior(prevalence=np.array([0.0, 1.0, *[0.2] * 13]))
    posterior = forward_backward(DESIGN, Outcomes.parse("11000000"), RATES, prior)
    assert posterior.log_odds[0] == np.inf
    assert posterior.log_odds[1] == -np.inf
    assert np.isfinite(posterior.log_odds[2:]).all()
    assert posterior.malicious[:2].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: decode(DESIGN, Outcomes.parse("0101"), rates=RATES), ShapeError, "4 outcomes"),
        (
            lambda: decode(DESIGN, outcomes_of([1]), rates=RATES, strategy="bp"),  # type: ignore[arg-type]
            SpecError,
            "known are count, delta, bayes, map, comp, dd",
        ),
        (lambda: decode(DESIGN, outcomes_of([1]), rates=RATES, beta=1.5), SpecError, "beta = 1.5"),
        (lambda: decode(DESIGN, outcomes_of([1]), rates=RATES, largest=16), CalibrationError, "0 to 15"),
        (
            lambda: forward_backward(DESIGN, outcomes_of([1]), RATES, IndependentPrior.uniform(4, 0.1)),
            ShapeError,
            "4 prevalences",
        ),
        (
            lambda: forward_backward(DESIGN, outcomes_of([1]), RATES, CountPrior.uniform(16)),
            ShapeError,
            "allows 16 malicious",
        ),
        (lambda: IndependentPrior.uniform(3, 1.2), SpecError, "1.2"),
        (lambda: CountPrior(weights=np.array([0.0, 0.0])), SpecError, "weights"),
        (lambda: calibrate(DESIGN, RATES, 0), CalibrationError, "n_m = 0"),
        (lambda: calibrate(DESIGN, RATES, 2, beta=-1), CalibrationError, "beta"),
        (lambda: calibrate(identity(22), RATES, 2), CalibrationError, "exact expectations need"),
        (
            lambda: forward_backward(DENSE, Outcomes.parse("0" * 30), RATES, IndependentPrior.uniform(40, 0.1)),
            DesignError,
            "fewer open groups, or belief propagation by name",
        ),
        (lambda: ErrorRates(false_alarm=-0.1, misdetection=0), SpecError, "false alarm rate is -0.1"),
        (lambda: Outcomes.parse("01x"), SpecError, "'x'"),
        (lambda: Outcomes(values=np.array([0, 2], dtype=np.int8)), ShapeError, "0 \\(negative\\)"),
    ],
)
def test_bad_input_is_refused_with_what_was_needed(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()  # type: ignore[operator]


def test_outcomes_read_back_as_they_were_written() -> None:
    assert str(Outcomes.parse("1101?000")) == "1101?000"
