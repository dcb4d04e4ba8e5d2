"""The posterior over liars, against every set of clients; and whom two liars can frame."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fedgt.federation.liars import ACCUSED, PREVALENCE, Suspicions, parts

CLIENTS = tuple(f"c{number:02d}" for number in range(15))


def slow(sets: Sequence[frozenset[str]], clients: Sequence[str]) -> Mapping[str, float]:
    """Every set of liars that meets every set of suspects, by its prior."""
    total, weight = 0.0, dict.fromkeys(clients, 0.0)
    for size in range(len(clients) + 1):
        for liars in itertools.combinations(clients, size):
            if all(one & set(liars) for one in sets):
                prior = PREVALENCE**size * (1 - PREVALENCE) ** (len(clients) - size)
                total += prior
                for client in liars:
                    weight[client] += prior
    return {client: value / total for client, value in weight.items()}


@pytest.mark.parametrize("seed", range(20))
def test_the_posterior_is_the_sum_over_all_sets_of_liars(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients = CLIENTS[:8]
    found = [frozenset(rng.choice(clients, rng.integers(1, 5), replace=False).tolist()) for _ in range(5)]
    posterior, expected = Suspicions().after(1, found).posterior(clients), slow(found, clients)
    for client in clients:
        assert posterior[client] == pytest.approx(expected[client], abs=1e-9)


def test_who_waits_may_be_the_liar_as_well() -> None:
    """Sets were cut down to those who train: who shared a spoilt sum with a client that waits was accused with P = 1."""
    found = [frozenset({"c00", "c05"}), frozenset({"c06", "c07"}), frozenset({"c01", "c02", "c06"})]
    seen, training = Suspicions().after(1, found), ["c00", "c01", "c02", "c03"]
    expected = slow(found, CLIENTS[:8])
    assert seen.posterior(training) == pytest.approx({client: expected[client] for client in training}, abs=1e-9)
    assert not seen.accused(training)
    # Of the second set nobody trains, which used to end the run.
    seated = parts(training, seen, least=2, rng=np.random.default_rng(0))
    assert sorted(itertools.chain(*seated)) == training


def test_who_was_left_out_explains_its_faults() -> None:
    seen = Suspicions().after(1, [{"c00", "c01"}, {"c00", "c02"}, {"c03", "c04"}])
    assert seen.unexplained(["c00"]) == (frozenset({"c03", "c04"}),)
    assert "c00" not in seen.posterior(CLIENTS, ["c00"])
    assert not Suspicions().after(1, []).posterior(CLIENTS)["c00"] > PREVALENCE


def test_one_client_that_is_proved_to_have_lied_is_accused_at_once() -> None:
    assert set(Suspicions().after(1, [{"c05"}, {"c05", "c06", "c07"}]).accused(CLIENTS)) == {"c05"}


def test_the_same_fault_again_says_nothing_new() -> None:
    once = Suspicions().after(1, [{"c00", "c01"}])
    again = once.after(2, [{"c00", "c01"}, {"c00", "c01", "c02"}])
    assert again.posterior(CLIENTS) == once.posterior(CLIENTS)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(one, marks=pytest.mark.slow) for one in range(4, 10))])
def test_two_liars_who_spoil_just_the_groups_of_a_victim_do_not_frame_it(seed: int) -> None:
    """They see who sits where, and choose. For ever: the victim is in every set, and stays below the threshold."""
    rng = np.random.default_rng(seed)
    liars, victim = {"c00", "c01"}, "c02"
    seen = Suspicions()
    for number in range(1, 13):
        groups = parts(CLIENTS, seen, least=4, rng=rng)
        seen = seen.after(number, [set(one) for one in groups if victim in one and liars & set(one)])
        assert victim not in seen.accused(CLIENTS)
    assert seen.posterior(CLIENTS)[victim] <= 1 / (1 + PREVALENCE * (1 - PREVALENCE)) < ACCUSED


def test_complaints_of_two_liars_about_one_client_do_not_get_it_accused() -> None:
    """One bad dealer explains both, and two liars need two: V is nearly sure by the prior alone. Three are too many."""
    seen = Suspicions().after(1, [], complaints=[frozenset({"c00", "c02"}), frozenset({"c01", "c02"})])
    assert seen.posterior(CLIENTS)["c02"] == pytest.approx(1 / (1 + PREVALENCE * (1 - PREVALENCE)))
    assert not seen.accused(CLIENTS)
    assert set(seen.after(2, [], complaints=[frozenset({"c03", "c02"})]).accused(CLIENTS)) == {"c02"}


def test_complaints_send_nobody_to_train_apart() -> None:
    """They cost no sum."""
    seen = Suspicions().after(1, [], complaints=[frozenset({"c00", "c01"})])
    assert not any(seen.apart(number) for number in range(1, 9))
    assert seen.after(2, [{"c02", "c03"}]).apart(3)


@pytest.mark.slow
@pytest.mark.parametrize("liars", [1, 2])
def test_liars_are_found_and_nobody_else_is(liars: int) -> None:
    """Training rounds only, in which every liar spoils its sum: a fresh seed a run."""
    needed = []
    for seed in range(100, 140):
        rng = np.random.default_rng(seed)
        bad = set(rng.choice(CLIENTS, liars, replace=False).tolist())
        seen, gone = Suspicions(), set[str]()
        for number in range(1, 17):
            here = [client for client in CLIENTS if client not in gone]
            groups = parts(here, seen, least=4, rng=rng, gone=gone) if seen.apart(number, gone) else [tuple(here)]
            seen = seen.after(number, [set(one) for one in groups if bad & set(one)])
            gone |= set(seen.accused(here, gone))
            assert gone <= bad
            if gone == bad:
                break
        needed.append(number)
    if liars == 1:
        assert np.mean(np.array(needed) <= 6) >= 0.95
    assert np.median(needed) <= (5 if liars == 1 else 9)


def test_who_was_together_in_a_fault_sits_apart() -> None:
    seen = Suspicions().after(1, [{"c00", "c01", "c02"}])
    for seed in range(10):
        groups = parts(CLIENTS, seen, least=4, rng=np.random.default_rng(seed))
        assert sorted(map(len, groups)) == [4, 4, 7], "the fewer sit with a suspect, the more its next fault says"
        assert sorted(itertools.chain(*groups)) == list(CLIENTS)
        assert all(len(set(one) & {"c00", "c01", "c02"}) == 1 for one in groups)
    assert parts(CLIENTS[:7], seen, least=4, rng=np.random.default_rng(0)) == [CLIENTS[:7]]


def test_sums_are_taken_apart_for_some_rounds_after_a_fault_that_nobody_explains() -> None:
    seen = Suspicions().after(4, [{"c00", "c01"}])
    assert [number for number in range(1, 12) if seen.apart(number)] == [5, 6, 7]
    assert not seen.apart(5, ["c01"])


def test_a_liar_that_waits_until_sums_are_whole_again_waits_longer_each_time() -> None:
    """It used to spoil a sum of all in every fourth round, for ever: such a fault tells nobody apart."""
    seen, spoilt = Suspicions(), []
    for number in range(1, 101):
        if not seen.apart(number):
            seen = seen.after(number, [set(CLIENTS)])
            spoilt.append(number)
    assert spoilt == [1, 5, 12, 25, 50, 99]
