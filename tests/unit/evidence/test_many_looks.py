"""Three looks at honest clients are not two attacks: each has a line of its own, and sums over the tests are large."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import decode_graded, graded_screen
from fedgt.types import SetEvidence
from slow_cases import slow

MATRIX = named_design("graded-15x10-b").matrix
ROWS = MATRIX / MATRIX.sum(axis=1, keepdims=True)
CLASSES, INPUTS = 4, 50
SPECTRUM = np.exp(-np.arange(INPUTS) / 15)


@pytest.mark.parametrize("seed", [*slow(106), 107, *slow(*range(108, 114))])
def test_three_tests_of_honest_clients_make_nobody_certain(seed: int) -> None:
    """Where few features vary, and all is drawn anew in every round, three runs of eight had somebody at P > 0.98."""
    rng = np.random.default_rng(seed)
    tests: list[SetEvidence] = []
    for _ in range(3):
        layers = rng.normal(size=(15, CLASSES, INPUTS)) * SPECTRUM
        losses = 0.3 + rng.normal(scale=0.01, size=(10, CLASSES))
        means = np.tensordot(ROWS, layers, axes=1)
        one = graded_screen(means, losses, weights=ROWS, samples=[100] * 15, erased=[False] * 10).evidence
        assert one is not None
        tests.append(one)
    found = decode_graded(tests, clients=15, largest=7)
    assert found.posterior.max() < 0.98
    assert not found.flagged.any()
