"""Every attack and failure of a specification does in a whole run what it says, and the defence is told nothing of it."""

from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.experiment import make_spec, run
from fedgt.experiment.batch import run_batch
from fedgt.experiment.simulation import simulate
from fedgt.experiment.spec import ExperimentSpec
from fedgt.train import ATTACKS

BASE: dict[str, Any] = {"privacy": 4, "federation": {"rounds": 2}, "training": {"learning_rate": 0.1}}


def spec_of(attack: dict[str, Any], **more: Any) -> ExperimentSpec:
    return make_spec({**BASE, "attack": {"malicious": 3, "source": 9, "target": 3, **attack}, **more})


@pytest.mark.parametrize("kind", ATTACKS)
def test_every_attack_runs_to_its_end(kind: str) -> None:
    result = run(spec_of({"kind": kind}, method="no-defence"))
    assert result.status == "finished"
    assert [client.truth for client in result.clients].count("malicious") == 3
    assert (result.rounds[-1].attack_accuracy is not None) == (kind == "label-flip" or "backdoor" in kind)


@pytest.mark.slow
def test_a_backdoor_opens_without_a_defence_and_stays_shut_without_attackers() -> None:
    kind = {"kind": "backdoor", "malicious": 5, "boost": 2.0}
    attacked = run(spec_of(kind, method="no-defence", federation={"rounds": 8}))
    clean = run(spec_of(kind, method="oracle", federation={"rounds": 8}))
    assert attacked.rounds[-1].attack_accuracy is not None
    assert clean.rounds[-1].attack_accuracy is not None
    assert attacked.rounds[-1].attack_accuracy > 0.5 > 0.2 > clean.rounds[-1].attack_accuracy
    assert (attacked.rounds[-1].top1_accuracy or 0) > 0.8


def test_a_sleeper_is_honest_until_it_wakes() -> None:
    awake = simulate(spec_of({"kind": "label-flip"}, method="no-defence"))
    asleep = simulate(spec_of({"kind": "label-flip", "first_round": 2}, method="no-defence"))
    nobody = simulate(spec_of({"kind": "label-flip", "malicious": 0}, method="no-defence"))
    assert asleep.malicious == awake.malicious
    for number, like in ((1, nobody), (2, awake)):
        for client in asleep.clients:
            one, other = (
                world.cohort.trained(client, world.initial, round=number).parameters["weight"]
                for world in (asleep, like)
            )
            assert np.array_equal(one, other)


def test_attackers_of_two_kinds_are_different_clients() -> None:
    further = [{"kind": "label-permutation", "malicious": 2}, {"kind": "gaussian", "malicious": 1}]
    simulation = simulate(spec_of({"kind": "label-flip", "further": further}))
    assert len(simulation.malicious) == 6
    kinds = [simulation.cohort.behaviours[client].kind for client in sorted(simulation.malicious)]
    assert sorted((kinds.count(kind) for kind in set(kinds)), reverse=True) == [3, 2, 1]


def test_a_broken_site_is_honest_and_neither_malicious_nor_right() -> None:
    failures = [{"kind": "inverted-images"}, {"kind": "shuffled-labels", "clients": 2}, {"kind": "old-model"}]
    result = run(spec_of({"kind": "label-flip"}, method="no-defence", failures=failures))
    truths = [client.truth for client in result.clients]
    assert (truths.count("malicious"), truths.count("faulty"), truths.count("benign")) == (3, 4, 8)


@pytest.mark.slow
def test_a_batch_gives_the_runs_that_each_specification_gives_by_itself() -> None:
    specs = [
        spec_of({"kind": "backdoor"}, method="no-defence"),
        spec_of({"kind": "label-flip", "first_round": 2, "boost": 3.0}, method="no-defence"),
        spec_of({"kind": "ipm"}, method="no-defence"),
        spec_of({"kind": "label-flip"}, method="no-defence", failures=[{"kind": "old-model"}]),
    ]
    for alone, together in zip(map(run, specs), run_batch(specs), strict=True):
        assert [client.truth for client in alone.clients] == [client.truth for client in together.clients]
        for one, other in zip(alone.rounds, together.rounds, strict=True):
            assert one.top1_accuracy == pytest.approx(other.top1_accuracy, abs=0.005)
            assert one.attack_accuracy == (
                None if one.attack_accuracy is None else pytest.approx(other.attack_accuracy, abs=0.03)
            )


def test_new_keys_at_their_defaults_keep_the_key_of_earlier_results() -> None:
    mnist = {"privacy": 4, "data": {"name": "mnist"}, "screen": {"schedule": "first"}}
    plain = make_spec(mnist)
    written = make_spec({**mnist, "attack": {"first_round": 1, "boost": 1.0, "knowledge": "everybody"}})
    sleeping = make_spec({**mnist, "attack": {"first_round": 2}})
    assert plain.digest == written.digest == "336fdf6cffa00c037c6f0140adb59423a14894fdfefcb95c90ce026d1e87ea16"
    assert sleeping.digest != plain.digest


def test_more_attackers_and_failures_than_clients_are_refused() -> None:
    with pytest.raises(SpecError, match="with 13 further ones, but there are 15"):
        spec_of({"further": [{"malicious": 13}]})
    with pytest.raises(SpecError, match="13 clients, but only 12 are honest"):
        spec_of({}, failures=[{"kind": "old-model", "clients": 13}])


def test_rounds_that_do_not_fit_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(SpecError, match="last one"):
        simulate(spec_of({"kind": "label-flip", "first_round": 3, "last_round": 2}))


@pytest.mark.slow
def test_a_promise_alone_gives_a_good_model_of_the_default_data() -> None:
    spec = make_spec({"privacy": 4})
    assert (run(spec).rounds[-1].top1_accuracy or 0) > 0.93
    assert ExperimentSpec.model_validate(spec.model_dump()).digest == spec.digest
    assert make_spec({"privacy": 4, "training": {"momentum": 0.5}}).training.local_epochs == 1
