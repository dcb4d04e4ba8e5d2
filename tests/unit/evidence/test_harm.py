"""Which end of the line is malicious, and which label is under attack."""

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.evidence import Damage, contrasts, damage, label_under_attack
from harm_parts import log_harmful, log_risen
from slow_cases import slow

DESIGN = named_design("graded-15x10-b").matrix.astype(np.float64)
PARTS = contrasts(DESIGN, np.full(15, 80.0))


def members(*clients: int) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(15, dtype=np.bool_)
    chosen[list(clients)] = True
    return chosen


def losses(
    malicious: npt.NDArray[np.bool_], rises: list[float], *, seed: int = 0, noise: float = 0.02
) -> npt.NDArray[np.float64]:
    """The loss of each class rises with the fraction of malicious members."""
    fractions = DESIGN @ malicious / DESIGN.sum(axis=1)
    rng = np.random.default_rng(seed)
    return np.asarray(
        0.7 + fractions[:, None] * np.array(rises) + noise * rng.normal(size=(10, len(rises))), dtype=np.float64
    )


def test_a_set_does_harm_when_the_loss_rises_with_it_and_good_when_it_falls() -> None:
    culprits = members(2, 5, 11)
    up, down = (damage(PARTS, losses(culprits, [sign * 2.0, 0.0, 0.0])) for sign in (1, -1))
    sets = culprits[None]
    assert np.exp(log_harmful(up, sets)[0]) > 0.99
    assert np.exp(log_harmful(down, sets)[0]) < 0.01


def test_harm_to_one_class_counts_where_the_others_gain_from_it() -> None:
    """A flip may lower the loss of the target class: the class that moves most decides half of it."""
    found = damage(PARTS, losses(members(1, 4), [2.0, -0.7, -0.7, -0.7]))
    assert np.exp(log_harmful(found, members(1, 4)[None])[0]) > 0.4


def test_a_set_that_moves_nothing_is_neither_harmful_nor_risen() -> None:
    """Everybody malicious shifts all groups alike."""
    found = damage(PARTS, losses(members(1, 4), [2.0, 0.0]))
    sets = np.stack([members(), np.ones(15, dtype=np.bool_), members(1, 4)])
    np.testing.assert_allclose(log_harmful(found, sets)[:2], np.log(0.5))
    np.testing.assert_allclose(log_risen(found, sets)[:2], 0.0, atol=1e-9)
    assert log_risen(found, sets)[2] > 1.0


def test_equal_losses_of_all_groups_say_nothing() -> None:
    found = damage(PARTS, np.full((10, 3), 0.4) + np.arange(3))
    sets = np.stack([members(1), members(2, 3)])
    np.testing.assert_array_equal(log_risen(found, sets), 0.0)
    np.testing.assert_allclose(log_harmful(found, sets), np.log(0.5))
    assert label_under_attack(found, members(2, 3)).kind == "none"


def test_the_label_the_user_knows_is_the_only_one_that_counts() -> None:
    table = losses(members(3, 8), [0.0, 3.0, 0.0])
    informed = damage(PARTS, table, label=1)
    assert informed.classes.tolist() == [1]
    assert informed.by_class.shape == (9, 1)
    finding = label_under_attack(informed, members(3, 8))
    assert (finding.kind, finding.labels) == ("untargeted", (1,))  # the only class there is
    assert np.exp(log_harmful(damage(PARTS, table, label=0), members(3, 8)[None])[0]) < 0.99


def test_classes_without_a_validation_sample_are_left_out_and_the_others_keep_their_numbers() -> None:
    table = losses(members(3, 8), [0.0, 0.0, 0.0, 2.5])
    table[:, 1] = np.nan
    found = damage(PARTS, table)
    assert found.classes.tolist() == [0, 2, 3]
    finding = label_under_attack(found, members(3, 8))
    assert (finding.kind, finding.labels) == ("targeted", (3,))


@pytest.mark.parametrize("seed", range(6))
def test_p_values_are_those_of_holm_step_by_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    culprits = members(0, 6, 9)
    found = damage(PARTS, losses(culprits, rng.uniform(-0.3, 0.6, 6).tolist(), seed=seed, noise=0.03))
    finding = label_under_attack(found, culprits)
    raw = slow_p_values(found, culprits)
    corrected: dict[int, float] = {}
    running = 0.0
    for rank, (p, c) in enumerate(sorted((p, c) for c, p in enumerate(raw))):
        running = max(running, p * (len(raw) - rank))
        corrected[c] = min(running, 1.0)
    assert set(finding.labels) == {c for c, p in corrected.items() if p < 0.01}
    for c, p in zip(finding.labels, finding.p_values, strict=True):
        assert p == pytest.approx(corrected[c], rel=1e-6)
    assert list(finding.rises) == sorted(finding.rises, reverse=True)


def slow_p_values(found: Damage, culprits: npt.NDArray[np.bool_]) -> list[float]:
    """Regression of each loss contrast on the shift of the set, without intercept, one class after the other."""
    from scipy.stats import t

    x = found.shifts @ culprits
    values = []
    for y in found.by_class.T:
        slope = sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
        rest = sum((b - slope * a) ** 2 for a, b in zip(x, y, strict=True))
        freedom = len(x) - 1
        values.append(float(t.sf(slope / (rest / freedom / sum(a * a for a in x)) ** 0.5, freedom)))
    return values


@pytest.mark.parametrize(
    ("rises", "harm"), [([1.0, 1.0], True), ([1.0, 0.0], True), ([1.0, -0.9], False), ([0.0, 0.0], False)]
)
def test_of_few_classes_none_may_get_better_with_the_suspects(rises: list[float], harm: bool) -> None:
    """Who owns more of one class than others makes its loss fall, and another one rise."""
    suspects = members(2, 5, 11)
    found = damage(PARTS, losses(suspects, rises))
    assert (found.p_value_of_few_classes(suspects.astype(np.float64)) < 0.01) == harm
    if rises[1] < 0:
        assert found.p_value(suspects.astype(np.float64)) < 0.01


def test_with_nobody_malicious_a_label_is_hardly_ever_named() -> None:
    named = sum(
        label_under_attack(damage(PARTS, losses(members(), [0.0] * 10, seed=seed)), members(seed % 15)).kind != "none"
        for seed in range(200)
    )
    assert named <= 7  # 1 % expected


@pytest.mark.parametrize(
    ("table", "label", "message"),
    [
        (np.ones((9, 3)), None, "for 10 groups"),
        (np.ones(10), None, "for 10 groups"),
        (np.full((10, 2), np.nan), None, "no class has a sample"),
        (np.where(np.eye(10, 3) > 0, np.inf, 1.0), None, "not finite"),
        (np.ones((10, 3)), 3, "label 3 was asked for"),
    ],
)
def test_losses_that_do_not_fit_are_refused(table: npt.NDArray[np.float64], label: int | None, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        damage(PARTS, table, label=label)


@pytest.mark.parametrize("groups", [*slow(3), 4, *slow(6)])
def test_a_loss_that_follows_a_set_exactly_is_harm_or_good_and_never_no_number(groups: int) -> None:
    """Rounding carries such a correlation beyond 1."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        parts = contrasts(np.maximum(rng.random((groups, 12)) < 0.5, np.eye(groups, 12)), np.full(12, 80.0))
        if parts.size < 2:
            continue
        culprits = rng.random((20, 12)) < 0.3
        losses = np.linalg.pinv(parts.transform) @ parts.shifts @ culprits.T * rng.choice([-1.0, 1.0], 20)
        for column, one in enumerate(culprits):
            harm = damage(parts, losses[:, [column]]).log_harm(one[None])
            assert np.isfinite(harm).all()
