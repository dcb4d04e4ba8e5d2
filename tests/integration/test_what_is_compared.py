"""What the default compares: weights where clients own the classes evenly, margins where they do not."""

from functools import cache

import numpy as np
import pytest

from fedgt.design import searched_design
from fedgt.evidence import STORED, GradedEvidence, MarginEvidence
from fedgt.experiment import make_spec
from fedgt.experiment.simulation import simulate
from fedgt.federation import DecodeSettings, ScreenSettings, Validation
from fedgt.federation.group_means import GroupMeans
from fedgt.federation.measure import suspects
from fedgt.federation.views import chosen, graded_of
from fedgt.packed import pack, unpack

MATRIX = searched_design("nested-15x12-r4").design.plain.matrix
AUTO = ScreenSettings()
SPEC = {
    "seed": 3,
    "privacy": 4,
    "data": {"name": "digits"},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5},
    "attack": {"kind": "label-flip", "malicious": 0},
}


@cache
def first_round(
    partition: str, boosted: frozenset[int] = frozenset(), times: float = 5.0
) -> tuple[GroupMeans, Validation]:
    """Twelve sums of clients that train on digits; some send their honest update several times."""
    spec = make_spec(SPEC, {"data.partition": partition})
    simulation = simulate(spec, masks=False)
    start, clients = simulation.initial, simulation.clients
    simulation.begin_round(1, clients)
    trained = [simulation.cohort.clients[client].train(start, round=1).parameters for client in clients]
    samples = np.array([simulation.federation.samples[client] for client in clients], dtype=np.float64)
    rows = MATRIX * samples
    shares = rows / rows.sum(axis=1, keepdims=True)
    moved = {
        name: np.stack(
            [
                (times if number in boosted else 1.0) * (np.asarray(one[name], dtype=np.float64) - start[name])
                for number, one in enumerate(trained)
            ]
        )
        for name in start
    }
    updates = [{name: np.tensordot(share, all_of, axes=1) for name, all_of in moved.items()} for share in shares]
    return GroupMeans(start=start, updates=updates, rows=rows, samples=samples), simulation.validation


def test_weights_are_compared_where_clients_own_the_classes_evenly() -> None:
    found = graded_of(*first_round("iid"), AUTO)
    assert isinstance(found.evidence, GradedEvidence)
    assert found.evidence.evenly_owned
    assert "margins" not in found.reason


def test_margins_are_compared_where_they_do_not_and_nobody_is_accused() -> None:
    found = graded_of(*first_round("dirichlet"), AUTO)
    assert isinstance(found.evidence, MarginEvidence)
    assert found.reason.startswith("clients own the classes unevenly, so margins are compared")
    assert not suspects([found.evidence], 15, screen=AUTO, decoding=DecodeSettings()).flagged.any()


def test_the_first_test_decides_it_for_those_after_it() -> None:
    """In later rounds noise looks like uneven shares; and nobody may change what is compared by waiting for them."""
    even, uneven = first_round("iid"), first_round("dirichlet")
    weights, margins = (graded_of(*one, AUTO).evidence for one in (even, uneven))
    assert weights is not None
    assert margins is not None
    assert isinstance(graded_of(*uneven, AUTO, chosen(weights)).evidence, GradedEvidence)
    assert isinstance(graded_of(*even, AUTO, chosen(margins)).evidence, MarginEvidence)


@pytest.mark.parametrize(("partition", "times"), [("iid", 5.0), ("iid", -4.0), ("dirichlet", -4.0)])
def test_nobody_switches_to_margins_by_pushing_hard(partition: str, times: float) -> None:
    """Whoever sends its update many times makes the classes look unevenly owned, and need not show in margins."""
    attackers = frozenset({2, 5, 11})
    found = graded_of(*first_round(partition, attackers, times), AUTO)
    assert isinstance(found.evidence, GradedEvidence)
    said = suspects([found.evidence], 15, screen=AUTO, decoding=DecodeSettings())
    assert set(np.flatnonzero(said.flagged | said.suspicious).tolist()) == attackers
    if found.evidence.far:
        way = "along" if times > 0 else "against"
        assert f"times as far as the others, {way} the mean update, as honest clients seldom do" in found.reason
        assert found.evidence.push is not None
        kept = unpack(pack(found.evidence, STORED, label=""), STORED)  # a run that goes on has the whole of it
        again = suspects([kept], 15, screen=AUTO, decoding=DecodeSettings())
        assert again.posterior.tolist() == said.posterior.tolist()
        assert chosen(found.evidence) == ""  # the next test chooses again
    else:
        assert partition == "iid"


def test_what_the_classification_layer_sees_is_needed_to_know() -> None:
    means, validation = first_round("dirichlet")
    blind = Validation(labels=validation.labels, logits=validation.logits)
    found = graded_of(means, blind, AUTO)
    assert isinstance(found.evidence, GradedEvidence)
    assert "clients that own other classes may be accused" in found.reason


def test_fewer_sets_are_searched_where_auto_compares_margins() -> None:
    """Nothing is refused after sums are opened: the bound that can be searched holds instead of the one asked for."""
    asked = DecodeSettings(max_malicious=8)
    assert asked.largest_graded(30, "auto") == 8
    assert asked.largest_graded(30, "auto", by_margins=True) < 8
