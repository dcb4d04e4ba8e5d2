"""Designs that are too large to be known exactly are described in bounded time, by an interval that is proved."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from fedgt.design import contamination, from_matrix, identity, max_malicious, named_design, single_group
from fedgt.privacy import minimum_support
from fedgt.privacy.information_sets import search_cost
from fedgt.privacy.support import affordable
from slow_cases import slow


@pytest.mark.parametrize("name", [*slow("bch-127x35", "identity-1000"), "single-group-10000"])
def test_a_large_design_is_described_in_bounded_time(name: str) -> None:
    command = [sys.executable, "-m", "fedgt", "design", "--name", name, "--json"]
    # Ten seconds of processor time on one core; other tests may run beside this one.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 1 <= found["privacy"] <= len(found["privacy_combination"]["clients"])


@pytest.mark.slow
def test_the_interval_is_certified_and_more_states_make_it_narrower() -> None:
    matrix = named_design("bch-127x35").matrix
    begin = time.process_time()
    few = minimum_support(matrix, max_states=20_000)
    more = minimum_support(matrix, max_states=2_000_000)
    assert time.process_time() - begin < 30.0
    assert few is not None
    assert more is not None
    assert few.lower <= more.lower <= more.upper <= few.upper
    assert more.lower > 8
    combined = np.array([float(b) for b in more.combination]) @ matrix
    assert np.flatnonzero(combined).tolist() == list(more.clients)


@pytest.mark.parametrize("states", [1, 100, 10_000, 10**6])
@pytest.mark.parametrize("name", ["bch-15x8", "cyclic-30x12", "bch-63x24"])
def test_what_can_be_afforded_is_the_largest_support_within_the_limit(name: str, states: int) -> None:
    reduced = named_design(name).matrix.astype(np.int64)
    k, n = reduced.shape
    within = [size for size in range(1, n) if search_cost(k, n, size) <= states * n]
    assert affordable(reduced, n - 1, states) == max(within, default=0)


def test_many_clients_are_counted_as_few_are() -> None:
    assert max_malicious(single_group(3000)) == 0
    assert contamination(single_group(3000)).probability[[0, 1, 3000]].tolist() == [0.0, 1.0, 1.0]
    assert max_malicious(identity(300)) == 299
    disjoint = from_matrix(np.repeat(np.eye(30, dtype=np.uint8), 4, axis=1))
    found = contamination(disjoint)
    assert found.exact
    assert found.probability[29] == 0.0
    assert found.probability[30] == pytest.approx(4.0**30 / float(np.prod([(120 - i) / (30 - i) for i in range(30)])))


def test_groups_that_would_take_long_to_count_are_sampled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = from_matrix(np.random.default_rng(0).random((12, 1200)) < 0.3)
    exact = contamination(wide)
    monkeypatch.setattr(sys.modules["fedgt.design.contamination"], "_MOST_TERMS", 1000)
    found = contamination(wide, rng=np.random.default_rng(1), samples=20_000)
    assert exact.exact
    assert not found.exact
    np.testing.assert_array_less(np.abs(found.probability - exact.probability), 6.0 * found.standard_error + 1e-12)
