"""What a test could have missed: against the decoder itself, and what follows from the sums alone."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.errors import ShapeError
from fedgt.evidence import contrasts, decode_graded, graded_screen
from fedgt.planning import smallest_named_shift
from slow_cases import slow

DESIGN = named_design("graded-10x6").matrix.astype(float)
FEATURES, CLASSES = 120, 4


def named_by_the_decoder(push: float, attackers: int, runs: int) -> float:
    """The share of runs in which the whole decision names all attackers who push so far along a direction of chance."""
    rng = np.random.default_rng(11)
    shares = DESIGN / DESIGN.sum(axis=1, keepdims=True)
    named = 0
    for _ in range(runs):
        malicious = np.zeros(10, dtype=bool)
        malicious[rng.choice(10, attackers, replace=False)] = True
        direction = rng.normal(size=FEATURES)
        updates = rng.normal(size=(10, FEATURES))
        updates[malicious] += push * FEATURES**0.5 * direction / np.linalg.norm(direction)
        losses = rng.normal(0.3, 0.01, size=(6, CLASSES))
        losses[:, 1] += 0.5 * shares @ malicious
        found = graded_screen(
            (shares @ updates).reshape(6, CLASSES, -1),
            losses,
            weights=DESIGN,
            samples=[100] * 10,
            erased=[False] * 6,
        )
        assert found.evidence is not None
        named += bool(decode_graded([found.evidence], clients=10, largest=4).flagged[malicious].all())
    return named / runs


@pytest.mark.parametrize("attackers", [1, *slow(2)])
def test_the_decoder_names_what_is_promised_and_misses_a_good_deal_of_what_is_weaker(attackers: int) -> None:
    push = smallest_named_shift(contrasts(DESIGN, [100] * 10).shifts, directions=FEATURES, attackers=attackers)
    assert push is not None
    assert named_by_the_decoder(push, attackers, 20) >= 0.8
    assert named_by_the_decoder(0.35 * push, attackers, 20) <= 0.6


def test_more_sums_and_more_directions_see_weaker_pushes() -> None:
    ten, eight = (contrasts(named_design(f"graded-15x{m}-b").matrix, [100] * 15).shifts for m in (10, 8))
    for directions in (None, 50.0):
        with_ten, with_eight = (smallest_named_shift(one, directions=directions, attackers=3) for one in (ten, eight))
        assert with_ten is not None
        assert with_eight is not None
        assert with_ten < with_eight
    few, many = (smallest_named_shift(ten, directions=d, attackers=1) for d in (20, 500))
    assert few is not None
    assert many is not None
    assert many < few


def test_what_no_sum_shows_is_named_at_no_push() -> None:
    """Two sums leave one difference, and no line through it can be told from another."""
    assert smallest_named_shift(contrasts(DESIGN[:2], [1] * 10).shifts, directions=100, attackers=1) is None


def test_the_same_question_has_the_same_answer() -> None:
    shifts = contrasts(DESIGN, [100] * 10).shifts
    answers = {smallest_named_shift(shifts, directions=60, attackers=2) for _ in range(2)}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("shifts", "attackers"), [([1.0, 2.0], 1), ([[np.nan, 1.0]], 1), (np.eye(4), 0)], ids=["vector", "nan", "nobody"]
)
def test_what_cannot_be_answered_is_refused(shifts: object, attackers: int) -> None:
    with pytest.raises(ShapeError):
        smallest_named_shift(shifts, directions=10, attackers=attackers)  # type: ignore[arg-type]


def test_of_one_client_in_particular_it_is_asked_how_hard_that_one_must_push() -> None:
    shifts = contrasts(DESIGN, [100] * 10).shifts
    far = shifts.copy()
    far[:, 3] *= 2.0  # twice the weight in every difference of groups
    near, other = (smallest_named_shift(one, directions=FEATURES, attackers=1, who=3) for one in (shifts, far))
    assert near is not None
    assert other is not None
    assert 0.4 < other / near < 0.65
    nowhere = shifts.copy()
    nowhere[:, 3] = 0.0
    assert smallest_named_shift(nowhere, directions=FEATURES, attackers=1, who=3) is None
    # The columns that are left out do not shift the question to another client.
    first = np.concatenate([np.zeros((len(shifts), 1)), shifts], axis=1)
    assert smallest_named_shift(first, directions=FEATURES, attackers=1, who=4) == near
