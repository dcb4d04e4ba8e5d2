"""Laws of the posterior over liars: what two liars can do by faults and complaints, whatever they choose."""

from hypothesis import given
from hypothesis import strategies as st

from fedgt.federation.liars import ACCUSED, PREVALENCE, Suspicions

CLIENTS = tuple(f"c{number:02d}" for number in range(15))
LIARS = ("c00", "c01")
HONEST = CLIENTS[2:]

COMPLAINTS = st.lists(
    st.tuples(st.sampled_from(LIARS), st.sampled_from(CLIENTS)).filter(lambda pair: pair[0] != pair[1]).map(frozenset),
    max_size=8,
)
FAULTS = st.lists(
    st.tuples(st.sampled_from(LIARS), st.frozensets(st.sampled_from(CLIENTS), min_size=1, max_size=8)).map(
        lambda one: frozenset({one[0], *one[1]})
    ),
    max_size=5,
)


@given(COMPLAINTS, FAULTS, st.sets(st.sampled_from(LIARS), max_size=1))
def test_whatever_two_liars_do_no_honest_client_is_accused(
    complaints: list[frozenset[str]], faults: list[frozenset[str]], gone: set[str]
) -> None:
    """In each fault and each complaint is one of them. So both together explain all, and nobody is above the bound."""
    seen = Suspicions().after(1, faults, complaints=complaints)
    posterior = seen.posterior(CLIENTS, gone)
    bound = 1 / (1 + PREVALENCE * (1 - PREVALENCE))
    assert bound < ACCUSED
    assert all(posterior[client] <= bound + 1e-9 for client in HONEST)


@given(FAULTS)
def test_a_complaint_says_nothing_about_anybody_else(faults: list[frozenset[str]]) -> None:
    """Where its two clients are in no other fault, the posterior of all others is as it was."""
    apart = [one - {"c13", "c14"} for one in faults]
    before = Suspicions().after(1, apart).posterior(CLIENTS)
    after = Suspicions().after(1, apart, complaints=[frozenset({"c13", "c14"})]).posterior(CLIENTS)
    for client in CLIENTS[:13]:
        assert abs(after[client] - before[client]) < 1e-9
    assert abs(after["c13"] - after["c14"]) < 1e-12, "it counts against neither of the two more than against the other"


@given(COMPLAINTS, FAULTS)
def test_a_complaint_makes_nobody_less_suspicious_of_its_two_clients(
    complaints: list[frozenset[str]], faults: list[frozenset[str]]
) -> None:
    """So nobody gains by being in one."""
    pair = frozenset({"c00", "c02"})
    before = Suspicions().after(1, faults, complaints=complaints).posterior(CLIENTS)
    after = Suspicions().after(1, faults, complaints=[*complaints, pair]).posterior(CLIENTS)
    assert all(after[client] >= before[client] - 1e-9 for client in pair)
