"""The decoder of graded evidence against plain enumeration, for evidence that is a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.errors import SpecError
from fedgt.evidence import decode_graded, sparse_prior
from fedgt.types import BoolArray, ExplainingEvidence, FloatArray, SetEvidence

CLIENTS, LARGEST = 6, 3
ALL = [one for q in range(LARGEST + 1) for one in combinations(range(CLIENTS), q)]


@dataclass(frozen=True)
class Table:
    """A log-likelihood for every set; what explains the line is told apart from what it is worth."""

    scores: dict[tuple[int, ...], float]
    fit: float = 0.0
    contrasts: int = 3

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        return np.array([self.scores[tuple(np.flatnonzero(one).tolist())] for one in sets])

    def explained(self, sets: BoolArray) -> FloatArray:
        return np.where(sets.any(axis=1), self.fit, -np.inf)

    def some(self) -> float:
        return max(self.scores.values())

    def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
        return 0.0

    evenly_owned = False

    def needs_no_opinion(self, suspects: BoolArray, aside: BoolArray) -> bool:
        return False

    def confirmed(self, sets: BoolArray, aside: BoolArray) -> FloatArray:
        return np.full(len(sets), np.nan)

    def one_owner_at_most(self, suspects: BoolArray) -> bool:
        return False

    def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> None:
        return None

    def apart(self) -> None:
        return None

    def two_lines(self) -> float:
        return 0.0

    def beside(self, attacks: Sequence[BoolArray]) -> None:
        return None

    def aside(self, attackers: BoolArray) -> None:
        return None

    def given(self, attackers: BoolArray) -> ExplainingEvidence | None:
        return None

    def lines(self, count: int) -> Sequence[SetEvidence]:
        return (self,) * count


def table(seed: int, *, spread: float = 2.0, nobody: float = -3.0, fit: float = 0.0) -> Table:
    rng = np.random.default_rng(seed)
    return Table({one: nobody if not one else spread * float(rng.normal()) for one in ALL}, fit)


def slow(tables: Sequence[Table], *, nobody: float = 0.5) -> dict[tuple[int, ...], float]:
    """The posterior of every set."""
    weights = {}
    for one in ALL:
        prior = nobody if not one else (1 - nobody) / LARGEST / comb(CLIENTS, len(one))
        weights[one] = prior * np.exp(sum(part.scores[one] for part in tables))
    total = sum(weights.values())
    return {one: float(weight / total) for one, weight in weights.items()}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_posterior_is_that_of_enumeration(seed: int, rounds: int) -> None:
    tables = [table(10 * seed + one) for one in range(rounds)]
    found = decode_graded(tables, clients=CLIENTS, largest=LARGEST, nobody=0.3)
    posterior = slow(tables, nobody=0.3)
    of_client = [sum(p for one, p in posterior.items() if j in one) for j in range(CLIENTS)]
    np.testing.assert_allclose(found.posterior, of_client, atol=1e-9)
    np.testing.assert_allclose(found.log_odds, np.log1p(-np.array(of_client)) - np.log(of_client), atol=1e-7)
    of_size = [sum(p for one, p in posterior.items() if len(one) == q) for q in range(LARGEST + 1)]
    np.testing.assert_allclose(found.count, of_size, atol=1e-9)
    assert found.against_nobody == pytest.approx(np.log1p(-posterior[()]) - np.log(posterior[()]))
    ranked = sorted(posterior, key=lambda one: -posterior[one])[:10]
    assert [one.clients for one in found.best] == ranked
    np.testing.assert_allclose([one.probability for one in found.best], [posterior[one] for one in ranked], atol=1e-9)
    assert found.undecided.tolist() == [0.02 <= p <= 0.98 for p in of_client]
    assert found.flagged.tolist() == [p > 0.5 and found.attacks > 0 for p in of_client]


def only(*sets: tuple[int, ...], fit: float = 0.0) -> Table:
    return Table({one: 20.0 if one in sets else 0.0 for one in ALL}, fit)


def test_one_set_far_ahead_is_decided_and_named() -> None:
    found = decode_graded([only((1, 4))], clients=CLIENTS, largest=LARGEST)
    assert (found.status, found.attacks) == ("decided", 1)
    assert np.flatnonzero(found.flagged).tolist() == [1, 4]
    assert "2 clients explain" in found.reason


def test_two_sets_of_equal_evidence_share_the_posterior_and_leave_what_they_differ_in_undecided() -> None:
    found = decode_graded([only((1, 4), (1, 5))], clients=CLIENTS, largest=LARGEST)
    assert found.status == "undecided"
    assert np.flatnonzero(found.undecided).tolist() == [4, 5]
    np.testing.assert_allclose(found.posterior[[1, 4, 5]], [1.0, 0.5, 0.5], atol=1e-5)
    assert {found.best[0].clients, found.best[1].clients} == {(1, 4), (1, 5)}


def test_a_second_round_that_tells_them_apart_decides() -> None:
    tied, telling = only((1, 4), (1, 5)), only((1, 5), (2, 3))
    found = decode_graded([tied, telling], clients=CLIENTS, largest=LARGEST)
    assert found.status == "decided"
    assert np.flatnonzero(found.flagged).tolist() == [1, 5]


def test_of_two_sets_that_explain_the_same_the_smaller_is_more_probable() -> None:
    found = decode_graded([only((2,), (1, 4, 5))], clients=CLIENTS, largest=LARGEST)
    assert found.best[0].clients == (2,)
    assert found.best[0].probability == pytest.approx(comb(6, 3) / (comb(6, 3) + comb(6, 1)), abs=1e-4)


def test_no_evidence_against_nobody_names_nobody() -> None:
    found = decode_graded([table(0, spread=0.1, nobody=5.0)], clients=CLIENTS, largest=LARGEST)
    assert (found.status, found.attacks) == ("nobody", 0)
    assert not found.flagged.any()
    assert found.against_nobody < 0


def test_a_difference_that_no_set_explains_names_nobody_and_says_so() -> None:
    found = decode_graded([only((1, 4), fit=-100.0)], clients=CLIENTS, largest=LARGEST)
    assert found.status == "unexplained"
    assert not found.flagged.any()
    assert found.undecided.all()
    assert np.isnan(found.posterior).all()
    assert "along no line that at most 3 clients explain" in found.reason


def test_without_evidence_there_is_no_posterior() -> None:
    found = decode_graded([], clients=CLIENTS, largest=LARGEST)
    assert (found.status, found.attacks, found.best) == ("no-evidence", 0, ())
    assert np.isnan(found.posterior).all()
    assert not found.undecided.any()


@pytest.mark.parametrize("beta", [0.05, 0.5, 0.95])
def test_beta_moves_the_posterior_from_which_a_client_is_accused(beta: float) -> None:
    found = decode_graded([table(3)], clients=CLIENTS, largest=LARGEST, beta=beta)
    assert found.flagged.tolist() == (found.posterior > 1 - beta).tolist()


@pytest.mark.parametrize("clients", [1, 4, 15])
def test_the_sparse_prior_adds_up_and_is_uniform_over_sizes(clients: int) -> None:
    weights: npt.NDArray[np.float64] = sparse_prior(clients, clients, nobody=0.2).weights
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights[1:], 0.8 / clients)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"beta": -0.1}, SpecError, "beta = -0.1"),
        ({"undecided": 0.0}, SpecError, "undecided = 0.0"),
        ({"undecided": 0.6}, SpecError, "undecided = 0.6"),
        ({"nobody": 0.0}, SpecError, "nobody malicious"),
        ({"largest": 0}, SpecError, "1 to 6"),
    ],
)
def test_numbers_out_of_range_are_refused(settings: dict[str, float], error: type[Exception], message: str) -> None:
    given: dict[str, float] = {"clients": CLIENTS, "largest": LARGEST} | settings
    with pytest.raises(error, match=message):
        decode_graded([table(0)], **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("against", "accused"), [(2.5, False), (3.5, True)])
def test_nobody_is_accused_before_somebody_is_malicious_at_twenty_to_one(against: float, accused: bool) -> None:
    scores = dict.fromkeys(ALL, -50.0)
    scores[(2, 4)] = against + np.log(LARGEST * comb(CLIENTS, 2))  # with a prior of one half for nobody
    scores[()] = 0.0
    found = decode_graded([Table(scores)], clients=CLIENTS, largest=LARGEST, undecided=0.1)
    assert found.against_nobody == pytest.approx(against, abs=1e-6)
    assert np.flatnonzero(found.flagged).tolist() == ([2, 4] if accused else [])
    assert found.posterior[2] > 0.9
