"""Work that takes too long stops and says how far it came; what it says is true wherever it stopped."""

import math
import re

import numpy as np
import pytest

from fake_clock import after, questions_of
from fedgt.deadline import NEVER, Deadline
from fedgt.design import named_design
from fedgt.errors import DesignError, OutOfTimeError, SpecError
from fedgt.planning import Demands, expected, search, search_graded
from fedgt.planning.evaluation import evaluate, figures
from fedgt.privacy import disclosed_share, exposure, minimum_support
from fedgt.types import ErrorRates

SMALL = Demands(clients=9, privacy=2, max_malicious=2, groups_max=5)
WIDE = (np.random.default_rng(3).random((16, 40)) < 0.4).astype(int)
"""Large enough for its search to be a ladder of several steps."""


def test_a_deadline_passes_after_its_seconds_and_not_before() -> None:
    now = [100.0]
    deadline = Deadline(5.0, clock=lambda: now[0])
    half = deadline.part(0.5)
    seen = []
    for now[0] in (100.0, 102.4, 102.5, 104.9, 105.0):
        seen.append((half.passed(), deadline.passed()))
    assert seen == [(False, False), (False, False), (True, False), (True, False), (True, True)]
    with pytest.raises(OutOfTimeError, match="not done after 5 s"):
        deadline.check()
    assert not NEVER.passed()


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_seconds_that_are_no_time_are_refused(seconds: float) -> None:
    with pytest.raises(SpecError, match="seconds = "):
        Deadline(seconds)


@pytest.mark.parametrize("questions", [1, 2, 5, 20, 60])
def test_wherever_the_proof_of_r_stops_its_interval_holds_r(questions: int) -> None:
    whole = minimum_support(WIDE)
    cut = minimum_support(WIDE, deadline=after(questions))
    assert whole is not None
    assert cut is not None
    assert whole.exact
    assert cut.lower <= whole.r <= cut.upper
    combined = np.array([float(b) for b in cut.combination]) @ WIDE
    assert tuple(np.flatnonzero(np.abs(combined) > 1e-9)) == cut.clients


def test_a_later_stop_of_the_proof_never_knows_less_and_an_early_one_knows_something() -> None:
    deadline, clock = questions_of()
    minimum_support(WIDE, deadline=deadline)
    lowers = []
    for questions in np.linspace(1, clock.asked, 12).astype(int).tolist():
        cut = minimum_support(WIDE, deadline=after(questions))
        assert cut is not None
        lowers.append(cut.lower)
    assert lowers == sorted(lowers)
    assert lowers[0] == 1
    assert lowers[-2] > 1


@pytest.mark.parametrize("questions", [1, 3, 10, 40, 200])
def test_wherever_the_exposure_of_clients_stops_their_intervals_are_right(questions: int) -> None:
    rows = named_design("graded-20x12").matrix
    whole, cut = exposure(rows), exposure(rows, deadline=after(questions))
    assert whole is not None
    assert cut is not None
    assert set(cut.clients) <= set(whole.clients) or not cut.complete
    for right, one in zip(whole.personal, cut.personal, strict=True):
        assert right is not None
        assert one is not None
        assert one.lower <= right.lower <= right.upper <= one.upper


def test_a_part_of_the_colluders_is_no_worst_case() -> None:
    with pytest.raises(OutOfTimeError):
        disclosed_share(named_design("bch-15x8").matrix, colluding=3, deadline=after(2))


def test_a_search_with_enough_time_is_the_search_without_a_limit() -> None:
    deadline, _ = questions_of()
    timed = search(SMALL, effort=0.05, seed=1, draws=2, deadline=deadline)
    free = search(SMALL, effort=0.05, seed=1, draws=2, deadline=NEVER)
    assert timed.far == ""
    assert timed.looked_at == timed.planned == free.looked_at
    assert [one.figures.gains for one in timed.front] == [one.figures.gains for one in free.front]


@pytest.mark.parametrize("questions", [2, 10, 40, 120])
@pytest.mark.parametrize("evidence", ["binary", "graded"])
def test_a_search_that_is_stopped_anywhere_says_how_far_it_came_and_keeps_the_promise(
    questions: int, evidence: str
) -> None:
    demands = Demands(clients=9, privacy=2, max_malicious=2, groups_max=5, evidence=evidence)  # type: ignore[arg-type]
    far = rf"searched \d+ of \d+ designs in {questions} s; more time: --seconds"
    try:
        result = search(demands, effort=0.3, seed=1, draws=2, deadline=after(questions))
    except DesignError as error:
        assert questions < 20
        assert re.search(far, str(error))  # noqa: PT017
        return
    assert result.looked_at < result.planned
    assert re.fullmatch(far, result.far)
    for one in result.front:
        support = minimum_support(one.design.matrix)
        assert support is not None
        assert support.r >= 2


def test_a_search_that_finds_nothing_in_time_says_so() -> None:
    demands = Demands(clients=9, privacy=5, max_malicious=2, kappa=0.2, groups_max=5)
    with pytest.raises(DesignError, match=r"; searched \d+ of \d+ designs in 3 s; more time: --seconds$"):
        search(demands, effort=0.3, draws=3, deadline=after(3))


@pytest.mark.parametrize("questions", [1, 3, 30])
def test_a_graded_search_that_is_stopped_gives_a_design_that_keeps_the_promise_or_none(questions: int) -> None:
    found = search_graded(9, 5, privacy=3, rng=np.random.default_rng(0), moves=40, polish=10, deadline=after(questions))
    assert found is None or found.support.r >= 3


def test_errors_that_could_not_be_counted_in_time_are_unknown_and_not_zero() -> None:
    demands = Demands(clients=15, privacy=4, max_malicious=5)
    design = named_design("bch-15x8")
    with pytest.raises(OutOfTimeError):
        expected(design, ErrorRates.symmetric(0.05), malicious=range(6), largest=5, deadline=after(2))
    late = evaluate(figures(design, demands), demands, deadline=after(2))
    assert np.isnan(late.wrong).all()
    assert np.isnan(late.expected_most)
