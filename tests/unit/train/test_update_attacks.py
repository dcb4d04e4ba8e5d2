"""Attacks on the update, against the formulas of their papers, written slowly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedgt.errors import SpecError
from fedgt.train import FreeRider, GaussianNoise, InnerProduct, LittleIsEnough, MinMax, SignFlip, attack_named

RNG = np.random.default_rng(11)
KNOWN = RNG.normal(size=(6, 40))
OWN = RNG.normal(size=40)

known_updates = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=st.floats(-10, 10).map(lambda v: round(v, 3))
)


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_sign_flip_keeps_the_length_and_turns_the_direction() -> None:
    assert np.array_equal(SignFlip().sent(OWN, KNOWN, rng=rng()), -OWN)
    assert np.array_equal(SignFlip(strength=3.0).sent(OWN, KNOWN, rng=rng()), -3 * OWN)


def test_noise_has_the_stated_norm_and_nothing_of_the_update() -> None:
    own = RNG.normal(size=20_000)
    noise = GaussianNoise(strength=5.0).sent(own, own[None], rng=rng())
    assert np.linalg.norm(noise) == pytest.approx(5 * np.linalg.norm(own))
    assert abs(noise @ own) / (np.linalg.norm(noise) * np.linalg.norm(own)) < 0.03  # 1 / sqrt(20,000) is 0.007


def test_alie_is_the_mean_less_z_deviations_in_every_parameter() -> None:
    sent = LittleIsEnough(strength=1.5).sent(OWN, KNOWN, rng=rng())
    for entry, column in zip(sent, KNOWN.T, strict=True):
        mean = sum(column) / len(column)
        deviation = (sum((value - mean) ** 2 for value in column) / len(column)) ** 0.5
        assert entry == pytest.approx(mean - 1.5 * deviation)


def test_ipm_turns_the_inner_product_with_the_mean_negative() -> None:
    sent = InnerProduct(strength=0.5).sent(OWN, KNOWN, rng=rng())
    assert np.allclose(sent, -0.5 * KNOWN.mean(axis=0))


@given(known=known_updates)
def test_min_max_is_the_longest_push_that_stays_within_the_widest_distance(known: np.ndarray) -> None:
    sent = MinMax().sent(known[0], known, rng=rng())
    widest = max(float(np.linalg.norm(one - other)) for one in known for other in known)
    assert max(float(np.linalg.norm(sent - one)) for one in known) <= widest + 1e-6 * (1 + widest)
    push = sent - known.mean(axis=0)
    if known.std(axis=0).any():
        farther = known.mean(axis=0) + 1.01 * push - 1e-3 * known.std(axis=0)
        assert max(float(np.linalg.norm(farther - one)) for one in known) > widest - 1e-6


def test_a_free_rider_sends_what_it_received() -> None:
    assert not FreeRider().sent(OWN, KNOWN, rng=rng()).any()
    disguised = FreeRider(strength=0.1).sent(OWN, KNOWN, rng=rng())
    assert np.linalg.norm(disguised) == pytest.approx(0.1 * np.linalg.norm(OWN))


@pytest.mark.parametrize("name", ["sign-flip", "gaussian", "alie", "ipm", "free-rider"])
@pytest.mark.parametrize("strength", [-1.0, float("nan")])
def test_a_strength_out_of_range_is_refused(name: str, strength: float) -> None:
    with pytest.raises(SpecError, match=r"strength|z ="):
        attack_named(name, strength=strength)


def test_a_strength_of_an_attack_that_has_none_is_refused() -> None:
    with pytest.raises(SpecError, match="label-flip has no strength"):
        attack_named("label-flip", source=1, target=7, strength=2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_attack_keeps_the_precision_of_the_updates(dtype: type[np.floating]) -> None:
    known = KNOWN.astype(dtype)
    for attack in (SignFlip(), GaussianNoise(), LittleIsEnough(), InnerProduct(), FreeRider(), MinMax()):
        assert attack.sent(known[0], known, rng=rng()).dtype == dtype
