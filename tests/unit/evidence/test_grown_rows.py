"""Groups that have come to differ in some classes: a line of honest clients would have been there before."""

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.evidence import GradedEvidence, decode_graded, graded_screen

MATRIX = named_design("graded-15x10-b").matrix
ATTACKERS = [1, 4, 6, 9, 13]
NOBODY = np.zeros((1, 15), dtype=np.bool_)
GROWN = np.array([2.0, 0.0, 1.5, -1.0])


def evidence(push: float, seed: int = 0) -> GradedEvidence:
    """Five clients that move the rows of classes 0 and 2 against each other, unequally hard."""
    rng = np.random.default_rng(seed)
    layers = rng.normal(size=(15, 4, 50))
    way = push * rng.normal(size=50)
    losses = np.tile(np.array([0.3, 0.3, 0.3, 0.3]), (15, 1))
    for client in ATTACKERS:
        hard = float(np.exp(0.5 * rng.normal()))
        layers[client, 0] -= hard * way
        layers[client, 2] += hard * way
        losses[client, 0] += 0.2 * (push > 0)
    rows = MATRIX / MATRIX.sum(axis=1, keepdims=True)
    found = graded_screen(
        np.tensordot(rows, layers, axes=1),
        rows @ losses + 0.001 * rng.normal(size=(10, 4)),
        weights=MATRIX,
        samples=[100] * 15,
        erased=[False] * 10,
    ).evidence
    assert isinstance(found, GradedEvidence)
    return found


def test_both_rows_of_a_line_must_have_grown_and_of_all_rows_nothing_is_said() -> None:
    known = {one.labels: one.grown for one in evidence(1.0).since(GROWN).hypotheses}
    assert known[()] == 0.0
    assert known[0, 2] == 1.5
    assert known[0, 1] == known[1, 2] == 0.0
    assert known[0, 3] == 0.0, "the groups differ less in class 3 than before"


@pytest.mark.parametrize("seed", range(6))
def test_whoever_makes_a_line_that_was_not_there_before_is_surer_to_be_somebody(seed: int) -> None:
    plain = evidence(1.0, seed)
    grown = plain.since(GROWN)
    assert plain.strongest.labels == (0, 2)
    before, after = (decode_graded([one], clients=15, largest=7) for one in (plain, grown))
    assert before.against_nobody <= after.against_nobody <= before.against_nobody + 1.5
    # Who it is says the line, as before.
    somebody = [one.count[0] for one in (before, after)]
    for j in range(15):
        given = [one.posterior[j] / (1.0 - nobody) for one, nobody in zip((before, after), somebody, strict=True)]
        assert given[0] == pytest.approx(given[1], rel=1e-6, abs=1e-9)


def test_what_has_grown_without_bound_leaves_a_line_of_honest_clients_a_twentieth_of_its_probability() -> None:
    """The rows of a class that nobody has had before may not have differed at all."""
    known = {one.labels: one.grown for one in evidence(1.0).since(np.array([700.0, 0.0, np.inf, -np.inf])).hypotheses}
    assert known[0, 2] == 3.0
    assert known[0, 3] == known[0, 1] == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_noise_alone_is_as_likely_as_before_whatever_has_grown(seed: int) -> None:
    plain = evidence(0.0, seed)
    grown = plain.since(np.full(4, 1e6))
    assert grown.log_likelihood(NOBODY)[0] >= np.log(0.5) + np.log(0.5)
    assert not decode_graded([grown], clients=15, largest=7).flagged.any()


def test_one_attack_explains_the_growth_and_a_further_one_is_not_made_of_it() -> None:
    grown = evidence(1.0).since(GROWN)
    attackers = np.zeros(15, dtype=np.bool_)
    attackers[ATTACKERS] = True
    assert grown.strongest.grown == 1.5
    for left in (grown.beside([attackers]), grown.aside(attackers)):
        assert left is not None
        assert all(one.grown == 0.0 for one in left.rows)
