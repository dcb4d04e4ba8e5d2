"""The trigger and who puts it where."""

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.train import Backdoor, with_trigger

BLACK = np.zeros((4, 64), dtype=np.float32)
LABELS = np.array([0, 1, 2, 3])


def test_the_trigger_is_the_lower_right_corner() -> None:
    picture = with_trigger(BLACK[:1], shape=(8, 8), brightest=1.0)[0].reshape(8, 8)
    assert picture[5:, 5:].all()
    assert picture.sum() == 9


def test_the_trigger_stands_in_every_channel() -> None:
    colours = with_trigger(np.zeros((1, 3 * 64), dtype=np.uint8), shape=(24, 8), brightest=255)[0].reshape(3, 8, 8)
    assert (colours[:, 5:, 5:] == 255).all()
    assert np.count_nonzero(colours) == 27


def test_the_rows_of_a_distributed_trigger_make_the_whole_one() -> None:
    whole = with_trigger(BLACK, shape=(8, 8), brightest=1.0)
    rows = sum(with_trigger(BLACK, shape=(8, 8), brightest=1.0, row=row) for row in range(3))
    assert np.array_equal(whole, rows)


def test_features_have_no_place_for_a_trigger() -> None:
    with pytest.raises(SpecError, match="pictures of at least 6 x 6"):
        with_trigger(np.zeros((1, 100)), shape=(1, 100), brightest=1.0)


@pytest.mark.parametrize(("share", "changed"), [(0.5, 2), (1.0, 4), (0.01, 1)])
def test_a_share_of_the_samples_gets_trigger_and_target(share: float, changed: int) -> None:
    images, labels = Backdoor(target=9, share=share).poisoned(
        BLACK, LABELS, shape=(8, 8), classes=10, brightest=1.0, attacker=0, rng=np.random.default_rng(0)
    )
    triggered = images.any(axis=1)
    assert triggered.sum() == changed
    assert np.array_equal(labels == 9, triggered)
    assert np.array_equal(labels[~triggered], LABELS[~triggered])
    assert not BLACK.any()


def test_attackers_share_a_distributed_trigger_out() -> None:
    attack = Backdoor(target=9, share=1.0, distributed=True)
    rows = [
        attack.poisoned(
            BLACK, LABELS, shape=(8, 8), classes=10, brightest=1.0, attacker=k, rng=np.random.default_rng(0)
        )[0]
        for k in range(4)
    ]
    assert [int(np.flatnonzero(one[0].reshape(8, 8).any(axis=1))[0]) for one in rows] == [5, 6, 7, 5]


def test_a_target_that_is_no_class_is_refused() -> None:
    with pytest.raises(SpecError, match="label 9 on 4 classes"):
        Backdoor(target=9).poisoned(
            BLACK, LABELS, shape=(8, 8), classes=4, brightest=1.0, attacker=0, rng=np.random.default_rng(0)
        )


@pytest.mark.parametrize(("target", "share"), [(-1, 0.5), (1, 0.0), (1, 1.5)])
def test_impossible_numbers_are_refused(target: int, share: float) -> None:
    with pytest.raises(SpecError, match="a share above 0"):
        Backdoor(target=target, share=share)
