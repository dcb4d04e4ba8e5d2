"""How unevenly clients own the classes, and what margins say about suspects that the weights have found."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.evidence import GradedScreen, SecondOpinion, class_losses, label_spread, margin_screen, margins
from fedgt.evidence.by_margins.spread import MORE_THAN_CHANCE
from fedgt.evidence.contrast import mean_of_others

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
CLASSES, COUNTS = 6, np.full(6, 10)
STEPS = np.random.default_rng(1).normal(size=(CLASSES, CLASSES, CLASSES))
START = np.random.default_rng(2).normal(size=(CLASSES, CLASSES))
Floats = npt.NDArray[np.float64]


def spread(
    shares: Floats, samples: float = 100.0, scale: float = 1.0, aside: npt.NDArray[np.bool_] | None = None
) -> float:
    """Of clients that own classes in these shares, float[clients, classes], and move by steps on whole classes only."""
    owned = (DESIGN / DESIGN.sum(axis=1, keepdims=True)) @ shares
    moved = START + 0.7 * np.einsum("gc,cst->gst", owned, STEPS)
    return label_spread(
        scale * moved,
        scale * START,
        steps=STEPS,
        weights=DESIGN,
        samples=np.full(15, samples),
        counts=COUNTS,
        aside=aside,
    )


def test_the_spread_is_the_variance_of_shares_over_that_of_multinomial_counts() -> None:
    """One population: about 1, in whatever numbers. Dirichlet: as the textbook says, more with every sample."""
    rng = np.random.default_rng(3)
    p = np.full(CLASSES, 1 / CLASSES)
    for samples in (50, 1000):
        drawn = [spread(rng.multinomial(samples, p, size=15) / samples, samples) for _ in range(60)]
        assert 0.7 < np.mean(drawn) < 1.1  # a median of classes is a little below the mean
    # A Dirichlet share has, at concentration 1, the variance p (1 - p) / (classes + 1): n / (classes + 1) times as much.
    drawn = [spread(rng.dirichlet(np.ones(CLASSES), size=15), 700.0) for _ in range(60)]
    assert 0.6 * 100 < np.mean(drawn) < 1.1 * 100


def test_equal_owners_have_no_spread_and_one_label_that_is_flipped_does_not_make_one() -> None:
    even = np.full((15, CLASSES), 1 / CLASSES)
    assert spread(even) < 1e-20
    flipped = even.copy()
    flipped[:5, 2] += flipped[:5, 1]
    flipped[:5, 1] = 0.0
    assert spread(flipped) < MORE_THAN_CHANCE < spread(np.random.default_rng(4).dirichlet(np.ones(CLASSES), size=15))


def test_attackers_make_everybody_else_look_uneven_until_they_are_set_aside() -> None:
    """Whatever they do, also if all samples of one population are theirs to relabel."""
    rng = np.random.default_rng(8)
    counts = rng.multinomial(1000, np.full(CLASSES, 1 / CLASSES), size=15) / 1000
    attackers, pushed = np.isin(np.arange(15), [1, 6, 9]), np.array([3.0, -1.0, 0.0, 2.0, -2.0, 1.0])
    permuted = np.where(attackers[:, None], np.roll(counts, 1, axis=1) + pushed, counts)
    assert spread(permuted, 1000.0) > 10 * MORE_THAN_CHANCE
    others = spread(permuted, 1000.0, aside=attackers)
    assert others < 2.0
    assert others == pytest.approx(spread(counts, 1000.0, aside=attackers), rel=1e-6)  # what they do cancels
    assert spread(permuted, 1000.0, aside=np.isin(np.arange(15), [0, 3, 4])) > 10 * MORE_THAN_CHANCE
    assert spread(permuted, aside=np.ones(15, dtype=np.bool_)) == np.inf  # nobody is left


def test_in_the_mean_of_the_others_some_clients_cancel_and_everybody_else_counts_as_one() -> None:
    out = np.isin(np.arange(15), [2, 11])
    combination = mean_of_others(DESIGN, out)
    shares = combination @ (DESIGN / DESIGN.sum(axis=1, keepdims=True))
    assert combination.sum() == pytest.approx(1.0)
    assert shares[out] == pytest.approx(0.0, abs=1e-12)
    assert shares.sum() == pytest.approx(1.0)
    assert mean_of_others(DESIGN, np.zeros(15, dtype=np.bool_)).tolist() == [0.1] * 10


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 20))
def test_the_unit_of_the_logits_does_not_matter(scale: float, seed: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.ones(CLASSES), size=15)
    assert spread(shares, scale=scale) == pytest.approx(spread(shares), rel=1e-6)


def test_what_cannot_be_compared_has_no_spread_and_wrong_shapes_are_refused() -> None:
    same: dict[str, Any] = {"steps": STEPS, "samples": np.full(15, 100.0), "counts": COUNTS}
    still = np.repeat(START[None], len(DESIGN), axis=0)
    assert label_spread(still, START, weights=DESIGN, **same) == 0.0
    assert label_spread(still[:1], START, weights=DESIGN[:1], **same) == 0.0
    with pytest.raises(ShapeError, match="do not fit"):
        label_spread(still, START[:-1], weights=DESIGN, **same)


# The opinion --------------------------------------------------------------------------------------------------------


def screened(bad: list[int]) -> GradedScreen:
    """Margins of groups whose bad members call class 1 class 2."""
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(CLASSES), 10)
    base = rng.normal(size=(len(labels), CLASSES)) + 3.0 * np.eye(CLASSES)[labels]
    of_clients = base + 0.05 * rng.normal(size=(15, 1, CLASSES))
    for client in bad:
        of_clients[client, labels == 1, 2] += 2.0
    logits = np.tensordot(DESIGN / DESIGN.sum(axis=1, keepdims=True), of_clients, axes=1)
    return margin_screen(
        np.stack([margins(one, labels) for one in logits]),
        np.stack([class_losses(one, labels) for one in logits]),
        classes=np.arange(CLASSES),
        weights=DESIGN,
        erased=np.zeros(len(DESIGN), dtype=np.bool_),
        steps=None,
    )


def suspects(*sets: list[int]) -> npt.NDArray[np.bool_]:
    found = np.zeros((len(sets), 15), dtype=np.bool_)
    for row, clients in enumerate(sets):
        found[row, clients] = True
    return found


EVERYBODY = np.ones(15, dtype=np.bool_)


def test_margins_confirm_who_mislabels_and_nobody_else() -> None:
    opinion = SecondOpinion(spread=9.0, test=lambda aside: screened([3, 8]), heard=EVERYBODY)
    right, more, others = opinion(suspects([3, 8], [3, 8, 11], [0, 5, 11]), ~EVERYBODY)
    assert right > 10
    assert right > more + 2
    assert others < 2
    honest = SecondOpinion(spread=9.0, test=lambda aside: screened([]), heard=EVERYBODY)
    assert honest(suspects([3, 8]), ~EVERYBODY)[0] < 2


def test_nobody_is_asked_who_is_in_no_sum_or_cannot_be_compared() -> None:
    def never(aside: npt.NDArray[np.bool_]) -> GradedScreen:
        raise AssertionError("it must not be asked")

    absent = SecondOpinion(spread=9.0, test=never, heard=~suspects([1])[0])
    assert np.isnan(absent(suspects([1]), ~EVERYBODY)).all()
    nothing = replace(screened([]), evidence=None)
    assert np.isnan(
        SecondOpinion(spread=9.0, test=lambda aside: nothing, heard=EVERYBODY)(suspects([1]), ~EVERYBODY)
    ).all()


def test_of_a_set_only_those_who_are_there_are_looked_at() -> None:
    opinion = SecondOpinion(spread=9.0, test=lambda aside: screened([3]), heard=~suspects([8])[0])
    alone, with_absent, nobody = opinion(suspects([3], [3, 8], [8]), ~EVERYBODY)
    assert alone == with_absent
    assert np.isnan(nobody)


def test_the_sums_are_tested_once_however_often_it_is_asked() -> None:
    calls: list[int] = []

    def test(aside: npt.NDArray[np.bool_]) -> GradedScreen:
        calls.append(1)
        return screened([3])

    opinion = SecondOpinion(spread=9.0, test=test, heard=EVERYBODY)
    assert opinion(suspects([3]), ~EVERYBODY) != opinion(suspects([4]), ~EVERYBODY)
    assert calls == [1]
