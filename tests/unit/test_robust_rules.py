"""The driver of the robust rules: same federation as `fedgt reproduce`, refusals, scores, rows that are not made twice."""

from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import robust_rules
import rule_rows
import rule_tables
from contribution_scores import attackers_auc, errors_of_lowest, mean_difference, pair_points
from fedgt.errors import ShapeError
from fedgt.experiment import make_spec
from fedgt.experiment.batch import run_batch
from fedgt.experiment.simulation import simulate
from fedgt.federation.round import training_round
from fedgt.train import ImageData
from robust_rules import Run, run_rules, run_seed
from rule_rows import METHODS, Method, Row

NO_RULES: MappingProxyType[str, robust_rules.Aggregate] = MappingProxyType({})
PAIRS = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], dtype=np.uint8)


@pytest.fixture(scope="module")
def images() -> ImageData:
    """Shapes of MNIST, few samples: every class is a bright row of pixels in noise."""
    rng = np.random.default_rng(3)

    def some(
        count: int,
    ) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
        labels = rng.integers(10, size=count)
        pixels = rng.normal(size=(count, 784)).astype(np.float32)
        pixels.reshape(count, 28, 28)[np.arange(count), labels] += 1
        return pixels, labels

    train_images, train_labels = some(1004)
    test_images, test_labels = some(300)
    return ImageData(
        name="mnist",
        shape=(28, 28),
        classes=10,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


def test_a_rule_told_of_no_attackers_trains_the_model_of_no_defence() -> None:
    spec = make_spec(
        {},
        {
            "privacy": 4,
            "data.name": "digits",
            "method": "no-defence",
            "federation.rounds": 3,
            "attack.malicious": 2,
            "seed": 4,
        },
    )
    simulation = simulate(spec, masks=False)
    first = robust_rules.flat(simulation.initial)
    run = Run(method=Method(name="trimmed-mean", told="n_m"), expected=0, spec=spec, simulation=simulation, model=first)
    list(run_rules([run], NO_RULES))

    federation = simulate(spec, masks=False)
    parameters = federation.initial
    for number in (1, 2, 3):
        members = federation.clients
        federation.begin_round(number, members)
        parameters = training_round(federation.federation, parameters, round=number, members=members).parameters
    assert np.abs(robust_rules.flat(parameters) - first).max() > 1e-3
    np.testing.assert_allclose(run.model, robust_rules.flat(parameters), rtol=0, atol=1e-6)


def test_a_rule_gets_every_client_s_model_and_the_number_it_is_told() -> None:
    spec = make_spec(
        {}, {"privacy": 4, "data.name": "digits", "method": "no-defence", "federation.rounds": 2, "attack.malicious": 2}
    )
    simulation = simulate(spec, masks=False)
    seen = []

    def first_client(models: robust_rules.Vector, expected: int) -> robust_rules.Vector:
        seen.append((models.shape, expected))
        first: robust_rules.Vector = models[0]
        return first

    run = Run(
        method=Method(name="multi-krum", told="n_m"),
        expected=2,
        spec=spec,
        simulation=simulation,
        model=robust_rules.flat(simulation.initial),
    )
    for number, (models,) in run_rules([run], {"multi-krum": first_client}):
        assert np.array_equal(run.model, models[0])
        assert len(run.top1) == number
    assert seen == [((15, 650), 2)] * 2


def test_multi_krum_is_refused_where_its_proof_does_not_hold() -> None:
    assert robust_rules.refusal("multi-krum", clients=15, expected=5) == ""
    assert robust_rules.refusal("multi-krum", clients=15, expected=6) == ""
    said = robust_rules.refusal("multi-krum", clients=15, expected=7)
    assert "17 clients for f = 7, there are 15" in said
    assert robust_rules.refusal("trimmed-mean", clients=15, expected=7) == ""
    assert Method(name="multi-krum", told="nothing").expected(15, 3) == 7
    assert Method(name="multi-krum", told="most").expected(15, 3) == 6
    assert Method(name="multi-krum", told="n_m").expected(15, 3) == 3
    assert Method(name="median").expected(15, 3) is None


def test_scores_of_a_hand_made_example() -> None:
    utilities = np.array([0.2, 0.9, 0.4])
    # client 0 is in groups 0 and 2, client 1 in 0, client 2 in 1 and 2, client 3 in 1
    assert mean_difference(utilities, PAIRS) == pytest.approx([0.3 - 0.9, 0.2 - 0.65, 0.65 - 0.2, 0.9 - 0.3])
    # group 0 loses to both others, group 1 beats both, group 2 wins once and loses once
    assert pair_points(utilities, PAIRS) == pytest.approx([-2, -2, 2, 2])
    assert pair_points(np.array([0.2, 0.2, 0.2]), PAIRS) == pytest.approx([0, 0, 0, 0])
    everywhere = np.array([[1, 0, 1], [1, 0, 0]], dtype=np.uint8)
    assert mean_difference(np.array([0.5, 0.1]), everywhere) == pytest.approx([0, 0, 0.4])
    with pytest.raises(ShapeError, match="one utility for each row"):
        mean_difference(utilities[:2], PAIRS)


def test_auc_and_errors_of_hand_made_scores() -> None:
    malicious = np.array([True, True, False, False, False])
    assert attackers_auc(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), malicious) == 1
    assert attackers_auc(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), malicious) == 0
    # of six pairs, attacker 0 is below all three, attacker 1 below one and level with one
    assert attackers_auc(np.array([0.0, 2.0, 1.0, 2.0, 3.0]), malicious) == pytest.approx(4.5 / 6)
    assert attackers_auc(np.zeros(5), np.zeros(5, dtype=np.bool_)) is None
    assert errors_of_lowest(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), malicious) == 0
    assert errors_of_lowest(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), malicious) == 2
    # client 2 goes first, then one of three that are level, one of them an attacker
    assert errors_of_lowest(np.array([2.0, 3.0, 1.0, 2.0, 2.0]), malicious) == pytest.approx(2 - 1 / 3)
    assert errors_of_lowest(np.zeros(5), np.zeros(5, dtype=np.bool_)) == 0


def test_the_rows_are_of_the_federation_that_reproduce_runs(images: ImageData) -> None:
    wanted = {
        ("targeted", 3): (Method(name="mean"), Method(name="median"), Method(name="multi-krum", told="nothing")),
        ("untargeted", 5): (Method(name="mean"), Method(name="score-pairs", utility="loss")),
    }
    rows = run_seed(
        wanted,  # type: ignore[arg-type]
        dataset="mnist",
        seed=1,
        data=images,
        aggregates={"median": lambda models, _: np.median(models, axis=0)},
        library="numpy",
    )
    found = {(row["attack"], row["method"]): row for row in rows}
    assert len(found) == len(rows) == 5
    for attack, experiment, number in (("label-flip", "targeted", 3), ("label-permutation", "untargeted", 5)):
        spec = rule_rows.spec_of("mnist", experiment, number, "no-defence", 1)  # type: ignore[arg-type]
        (theirs,) = run_batch([spec], data=images, masks=False)
        mine = found[attack, "mean"]
        assert mine["spec_hash"] == spec.digest
        assert float(mine["top1_accuracy_percent"]) == pytest.approx(
            100 * (theirs.rounds[-1].top1_accuracy or 0), abs=0.5
        )
        assert len(mine["top1_accuracy_by_round_percent"].split()) == 10
    median = found["label-flip", "median"]
    assert median["top1_accuracy_by_round_percent"] != found["label-flip", "mean"]["top1_accuracy_by_round_percent"]
    assert (median["rules"], median["server_sees"]) == ("numpy", "every update")
    refused = found["label-flip", "multi-krum"]
    assert (refused["status"], refused["top1_accuracy_percent"]) == ("refused", "")
    score = found["label-permutation", "score-pairs"]
    assert score["server_sees"] == "group sums"
    assert 0 <= float(score["attackers_auc"]) <= 1
    assert score["missed_clients"] == score["falsely_excluded_clients"]


def test_scores_see_the_groups_and_attackers_of_the_paper_s_test(images: ImageData) -> None:
    plain = rule_rows.spec_of("mnist", "untargeted", 4, "no-defence", 2)
    grouped = rule_rows.spec_of("mnist", "untargeted", 4, "delta", 2)
    tested = simulate(grouped, data=images, masks=False)
    assert tested.grouping is not None
    assert tested.grouping.design.name == "bch-15x8"
    assert tested.malicious == simulate(plain, data=images, masks=False).malicious
    entries = robust_rules.flat(tested.initial).size
    models = np.zeros((15, entries), dtype=np.float32)
    # An attacker's bias drives every sample to class 0, the others' model knows nothing: a group is as bad as its attackers.
    models[[client in tested.malicious for client in tested.clients], 7840] = 50
    losses = robust_rules.group_utilities(tested, grouped, models)["loss"]
    attackers = [len(tested.malicious & set(tested.grouping.members(group))) for group in range(8)]
    assert len(set(attackers)) > 1
    assert attackers[int(np.argmax(losses))] == min(attackers)
    assert attackers[int(np.argmin(losses))] == max(attackers)


def _all_rows(seed: int, malicious: int, top1: str) -> list[Row]:
    rows = []
    for experiment in rule_rows.ATTACKS:
        spec = rule_rows.spec_of("mnist", experiment, malicious, "no-defence", seed)
        for method in METHODS:
            expected = method.expected(15, malicious)
            reason = robust_rules.refusal(method.name, clients=15, expected=expected)
            values = (
                {"attackers_auc": "0.5", "missed_clients": "1", "falsely_excluded_clients": "1"}
                if method.name in rule_rows.SCORES
                else {"top1_accuracy_percent": top1, "attack_accuracy_percent": top1}
            )
            status = {"status": "refused", "reason": reason} if reason else values
            rows.append(robust_rules.row_of(spec, method, expected, **status))
    return rows


def test_rows_that_are_there_are_not_run_again(tmp_path: Path) -> None:
    path, rows = tmp_path / "rules.csv", _all_rows(0, 2, "90")
    robust_rules.append(path, rows[:-1])
    left = robust_rules.missing(robust_rules.known_rows(path), dataset="mnist", seed=0, malicious=(2,))
    assert left == {("untargeted", 2): [METHODS[-1]]}
    robust_rules.append(path, rows[-1:])
    assert robust_rules.missing(robust_rules.known_rows(path), dataset="mnist", seed=0, malicious=(2,)) == {}
    assert len(robust_rules.missing(robust_rules.known_rows(path), dataset="mnist", seed=1, malicious=(2,))) == 2
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="other columns"):
        robust_rules.known_rows(path)


def test_the_tables_have_mean_deviation_and_what_was_refused(tmp_path: Path) -> None:
    said = rule_tables.tables(_all_rows(0, 2, "90") + _all_rows(1, 2, "91"), tmp_path, dataset="mnist")
    assert "| n_m | no-defence | median |" in said  # no column for methods without rows
    assert "| 2 |" + " 90.50 ± 0.71 |" * 6 in said
    assert "0.50; 1.00 / 1.00" in said
    assert "17 clients for f = 7, there are 15" in said
    assert "2 seeds" in said


def test_byzfl_s_rules_do_what_the_rows_say() -> None:
    pytest.importorskip("byzfl", reason="byzfl (it brings torch) is for the benchmark only: pip install byzfl==0.0.11")
    rules = robust_rules.byzfl_rules()
    models = np.random.default_rng(0).normal(size=(15, 40)).astype(np.float32)
    models[[2, 9]] += 30
    honest = np.delete(models, [2, 9], axis=0)
    np.testing.assert_allclose(rules["median"](models, 0), np.median(models, axis=0), rtol=1e-6)
    np.testing.assert_allclose(rules["trimmed-mean"](models, 2), np.sort(models, axis=0)[2:-2].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(rules["multi-krum"](models, 2), honest.mean(axis=0), rtol=1e-5, atol=1e-6)
