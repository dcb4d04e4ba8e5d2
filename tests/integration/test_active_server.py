"""A server that lies, with signed identities, pinned keys and the limits that the guide recommends: what it tries, and gets.

Every test plays the attack against real endpoints, as the attacker would: the server signs whatever helps it.
docs/threat-model.md names these tests line by line.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fedgt.design import named_design
from fedgt.engine import ClientEndpoint
from fedgt.errors import SpecError
from fedgt.secagg import (
    ClientPolicy,
    FixedPoint,
    RunTerms,
    quorum,
)
from promise_liar import CAREFUL, EIGHT, SITES, Liar, Site, far
from secagg_lab import Consortium
from slow_cases import slow

# Invented dropouts ------------------------------------------------------------------------------------------------------


def test_dropouts_that_are_invented_in_two_groups_open_nothing() -> None:
    """s0 to s4 are told of v in one sum and not in the other, although all vectors arrived: the difference is v's."""
    liar = Liar((*SITES, "v", "e1", "e2", "f1", "f2"), CAREFUL)
    plan = liar.plan((*SITES, "v", "e1", "e2"), (*SITES, "v", "f1", "f2"))
    lists = {0: ((*SITES, "v"), ("e1", "e2")), 1: (SITES, ("v", "f1", "f2"))}
    assert liar.open(plan, lists) == {}
    assert all("mix only v" in reason for reason in liar.refusals.values())
    assert set(liar.refusals) >= set(SITES)


@pytest.mark.parametrize(("first", "pairs", "refused"), [*slow((0, 7, 1)), (1, 1, 0), (2, 2, 0)])
def test_on_the_default_design_no_invented_dropouts_single_a_client_out(first: int, pairs: int, refused: int) -> None:
    """Ten pairs of groups with four clients or more in common: the rest of both is said to have dropped.

    Most lists are too short for the thresholds or the promise; where they are long enough, the account refuses.
    """
    design = named_design("graded-15x10-b")
    names = tuple(f"c{number:02d}" for number in range(15))
    rows = [tuple(names[j] for j in design.members(i)) for i in range(design.groups)]
    tried = by_account = 0
    for second in range(first + 1, 10):
        common = [name for name in rows[first] if name in rows[second]]
        if len(common) < 4:
            continue
        tried += 1
        liar = Liar(names, CAREFUL)
        victim = common[-1]
        stay = [name for name in common if name != victim]
        lists = {
            first: ((*stay, victim), [name for name in rows[first] if name not in common]),
            second: (stay, [name for name in rows[second] if name not in stay]),
        }
        assert liar.open(liar.plan(*rows), lists) == {}
        by_account += any(f"mix only {victim};" in reason for reason in liar.refusals.values())
    assert tried == pairs
    assert by_account == refused


def test_single_groups_cannot_be_opened_under_two_agreements() -> None:
    """The old rule, a threshold of one group, would let group 0 open under one list and group 1 under another."""
    liar = Liar((*SITES, "v", "e1", "e2", "f1", "f2"), CAREFUL)
    plan, server, _ = liar.vectors(liar.plan((*SITES, "v", "e1", "e2"), (*SITES, "v", "f1", "f2")))
    with_v = liar.link(plan, server, {0: ((*SITES, "v"), ("e1", "e2"))})
    first = liar.signed(plan, with_v, [*SITES, "v"])
    without_v = liar.link(plan, server, {1: (SITES, ("v", "f1", "f2"))})
    second = liar.signed(plan, without_v, [*SITES, "v", "e1", "e2", "f1", "f2"])
    assert len(first) == 6
    assert set(second) <= {"e1", "e2", "f1", "f2"}
    assert liar.shares(plan, without_v, {**first, **second}) == {}
    assert set(liar.shares(plan, with_v, {**first, **second})) <= {*SITES, "v"}, "one agreement has its quorum"


@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_colluders_that_sign_everything_do_not_make_a_second_quorum(colluders: int) -> None:
    """c clients sign both lists; the honest ones are split as well as can be."""
    names = tuple(f"c{number:02d}" for number in range(11))
    liar = Liar(names, ClientPolicy(privacy=4, colluders=colluders), colluders=colluders)
    plan, server, _ = liar.vectors(liar.plan(names))
    everybody = liar.link(plan, server, {0: (names, ())})
    less = liar.link(plan, server, {0: (names[:-1], names[-1:])})
    bad, honest = names[:colluders], names[colluders:]
    half = len(honest) // 2
    signatures = [liar.signed(plan, everybody, honest[:half]), liar.signed(plan, less, honest[half:-1])]
    for link, some in zip((everybody, less), signatures, strict=True):
        some |= {name: link.sign(liar.people.clients[name]) for name in bad}
    needed = quorum(len(names), colluders=colluders)
    assert sum(len(some) >= needed for some in signatures) <= 1
    released = [liar.shares(plan, link, some) for link, some in zip((everybody, less), signatures, strict=True)]
    assert sum(bool(set(one) - set(bad)) for one in released) <= 1


def test_a_quorum_of_those_who_are_left_is_none() -> None:
    """After exclusions the server counts among six of fifteen only: N does not shrink."""
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, CAREFUL)
    assert liar.open(liar.plan(names[:6])) == {}
    assert all("6 of 15 clients of the registry agree" in liar.refusals[name] for name in names[:6])


def test_an_agreement_that_hides_a_group_from_those_who_are_not_in_it_is_noticed() -> None:
    """The list that two sites sign names group 0 only, the one of the others both groups: neither finds a quorum."""
    names = tuple(f"c{number}" for number in range(10))
    liar = Liar(names, CAREFUL)
    plan, server, _ = liar.vectors(liar.plan(names[:6], names[2:8], names))
    some = liar.link(plan, server, {0: (names[:6], ()), 2: (names, ())})
    other = liar.link(plan, server, {1: (names[2:8], ()), 2: (names, ())})
    first, second = liar.signed(plan, some, names[:5]), liar.signed(plan, other, names[5:])
    assert max(len(first), len(second)) < quorum(10, colluders=1)
    assert liar.shares(plan, some, {**first, **second}) == {}
    assert liar.shares(plan, other, {**first, **second}) == {}


# What is needed to start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [None, ClientPolicy(), ClientPolicy(privacy=2), ClientPolicy(privacy=3, colluders=2)]
)
def test_a_client_with_an_identity_and_no_promise_does_not_start(policy: ClientPolicy | None) -> None:
    """The pairs ab, bc, ac give all three models: without a promise of its own a client would join in."""
    people = Consortium.of("abc")
    with pytest.raises(SpecError, match=r"Write a policy\.toml with privacy"):
        ClientEndpoint("a", Site("a"), policy=policy, credentials=people.of_client("a"))


def test_terms_that_promise_enough_are_as_good_as_a_policy() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    terms = replace(RunTerms.of(liar.plan(EIGHT)), privacy=4, colluders=1)
    liar = Liar(EIGHT, ClientPolicy(colluders=0), terms=terms)
    assert liar.open(liar.plan(EIGHT[:3])) == {}
    assert set(liar.open(liar.plan(EIGHT, round=2))) == set(EIGHT)


def test_pairs_are_refused() -> None:
    liar = Liar(("a", "b", "c"), ClientPolicy(privacy=3))
    assert liar.open(liar.plan("ab", "bc", "ac")) == {}
    assert liar.open(liar.plan("abc", round=2)) == {"a": (0,), "b": (0,), "c": (0,)}


def test_the_design_of_the_terms_holds_under_every_purpose() -> None:
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, CAREFUL)
    rows = [names[:5], names[5:10], names[10:]]
    terms = RunTerms.of(liar.plan(*rows), design=True)
    liar = Liar(names, CAREFUL, terms=terms)
    others = [names[:6], names[6:]]
    for purpose in ("test", "training", "weiszfeld-0", "anything"):
        assert liar.open(liar.plan(*others, purpose=purpose, round=1)) == {}
        assert all("the design changed" in reason for reason in liar.refusals.values())
    assert set(liar.open(liar.plan(*rows, round=2))) == set(names)


# The disclosed share ----------------------------------------------------------------------------------------------------

PARTITION = (EIGHT[:4], EIGHT[4:])
"""Two groups of four: a share of one seventh."""


def crossed(names: Sequence[str]) -> list[list[str]]:
    """Two more groups of four across the partition: r stays 2 or more, and each row tells more about everybody."""
    return [[names[j] for j in (0, 1, 4, 5)], [names[j] for j in (0, 2, 4, 6)]]


def test_more_groups_than_the_share_allows_are_refused_although_r_is_kept() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=2, colluders=0, largest_share=0.2), colluders=0)
    assert liar.open(liar.plan(*PARTITION, *crossed(EIGHT))) == {}
    assert all("this client's largest_share is 0.2" in reason for reason in liar.refusals.values())
    assert set(liar.refusals) == set(EIGHT)
    assert set(liar.open(liar.plan(*PARTITION, round=2))) == set(EIGHT)


def test_further_groups_about_the_same_model_are_added_to_the_share() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=2, colluders=0, largest_share=0.2), colluders=0)
    assert set(liar.open(liar.plan(*PARTITION))) == set(EIGHT)
    for change in ({"round": 2}, {"run": "another"}, {"purpose": "more"}):
        assert liar.open(liar.plan(*crossed(EIGHT), **change)) == {}
    assert liar.open(liar.plan(*crossed(EIGHT), round=3), models=far(1)), "another model is another account"


def test_invented_dropouts_do_not_raise_the_share_in_the_agreement() -> None:
    """The plan keeps the share; the members that the server says are alive do not."""
    liar = Liar(EIGHT, ClientPolicy(privacy=3, colluders=0, largest_share=0.2), colluders=0)
    plan = liar.plan(EIGHT, EIGHT)
    lists = {0: (EIGHT, ()), 1: (EIGHT[:5], EIGHT[5:])}
    assert liar.open(plan, lists) == {}
    assert any("largest_share" in reason for reason in liar.refusals.values())


def test_the_share_counts_what_colluders_know() -> None:
    """The partition tells a seventh to the server alone, and more with one of its members."""
    liar = Liar(EIGHT, ClientPolicy(privacy=3, colluders=1, largest_share=0.15), colluders=1)
    assert liar.open(liar.plan(*PARTITION)) == {}
    assert all("and 1 colluders" in reason for reason in liar.refusals.values())


def test_a_share_that_the_terms_promise_is_kept_by_every_client() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=3))
    terms = replace(RunTerms.of(liar.plan(*PARTITION)), privacy=3, largest_share=0.1)
    liar = Liar(EIGHT, ClientPolicy(privacy=3), terms=terms)
    assert liar.open(liar.plan(*PARTITION)) == {}
    assert set(liar.open(liar.plan(EIGHT, round=2))) == set(EIGHT)


# One colluding client ---------------------------------------------------------------------------------------------------


def test_the_careful_settings_of_the_guide_work_in_a_real_round() -> None:
    """Two colluders in groups of odd and even size, with the thresholds that the product proposes."""
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, replace(CAREFUL, colluders=2, privacy=5, minimum_group_size=5), colluders=2)
    assert set(liar.open(liar.plan(names[:5], names[5:11], names[11:] + names[:1]))) == set(names)


def test_a_plan_that_allows_for_fewer_colluders_than_the_policy_is_refused() -> None:
    liar = Liar(EIGHT, replace(CAREFUL, colluders=2), colluders=1)
    assert liar.open(liar.plan(EIGHT)) == {}
    assert all("allows for 1 colluders" in reason for reason in liar.refusals.values())


@pytest.mark.parametrize("size", [5, 7, 9])
def test_one_colluder_in_a_group_of_odd_size_does_not_open_two_lists(size: int) -> None:
    """The default threshold is above half with the colluder left out."""
    names = tuple(f"c{number}" for number in range(size))
    liar = Liar(names, ClientPolicy(privacy=3))
    plan, server, _ = liar.vectors(liar.plan(names))
    everybody, less = (liar.link(plan, server, {0: lists}) for lists in ((names, ()), (names[:-1], names[-1:])))
    half = (size - 1) // 2
    first, second = liar.signed(plan, everybody, names[1 : 1 + half]), liar.signed(plan, less, names[1 + half : -1])
    for link, some in ((everybody, first), (less, second)):
        some["c0"] = link.sign(liar.people.clients["c0"])
    released = [
        {name for name in liar.shares(plan, link, some) if name != "c0"}
        for link, some in ((everybody, first), (less, second))
    ]
    assert not all(released)


# The account over all runs ----------------------------------------------------------------------------------------------


def test_a_limit_over_all_runs_is_kept_whatever_the_model_and_the_run() -> None:
    """One absence exhausts it, as the threat model says: it is for consortia that would rather stop."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4, privacy_over_runs=2))
    assert liar.open(liar.plan(EIGHT), models=far(1))
    assert liar.open(liar.plan(EIGHT[1:], run="another"), models=far(2)) == {}
    assert all("all models and runs" in liar.refusals[name] for name in EIGHT[1:])
    assert set(liar.open(liar.plan(EIGHT, run="third"), models=far(3))) == set(EIGHT)


def test_weights_and_not_numbers_of_groups_decide_what_is_mixed() -> None:
    """The same eight clients twice, with the weight of one changed in between: the difference is its update."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    heavier = liar.plan(EIGHT, round=2, run="another", weights={**dict.fromkeys(EIGHT, 1), "c7": 2})
    assert liar.open(heavier) == {}
    assert all("mix only c7" in liar.refusals[name] for name in EIGHT)


def test_nobody_joins_a_sum_in_which_it_weighs_nearly_everything() -> None:
    """The plan has its true number of samples, and one sample of everybody else: the sum is its update, times 5,000."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    weights = {**dict.fromkeys(EIGHT, 1), "c7": 5000}
    encoding = FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64)
    _, _, replies = liar.vectors(liar.plan(EIGHT, weights=weights, encoding=encoding))
    assert "c7" not in replies
    assert "more than 20 times the mean of its peers" in liar.refusals["c7"]


def test_a_weight_that_changes_within_one_agreement_is_noticed() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    plan, server, _ = liar.vectors(liar.plan(EIGHT))
    link = liar.link(plan, server, {0: (EIGHT, ())}, weights={**dict.fromkeys(EIGHT, 1), "c7": 2})
    assert liar.signed(plan, link, EIGHT) == {}
    assert all("other weights than the plan" in reason for reason in liar.refusals.values())
