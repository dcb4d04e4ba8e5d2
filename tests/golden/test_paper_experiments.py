"""The paper's settings, and the values it prints, as `fedgt reproduce` uses them."""

import pytest

from fedgt.errors import SpecError
from fedgt.experiment import ExperimentSpec
from fedgt.experiment.simulation import design_of
from fedgt.reproduction.paper import (
    Cell,
    Dataset,
    Experiment,
    best_private,
    cells,
    default_seeds,
    paper_value,
    planned,
)
from fedgt.reproduction.robustness import robustness_table


def one(dataset: Dataset, variant: str, attack: str = "label-flip", malicious: int = 3) -> ExperimentSpec:
    experiment: Experiment = "targeted" if attack == "label-flip" else "untargeted"
    cell = Cell(attack=attack, malicious=malicious, variant=variant)
    return planned(cell, dataset, experiment=experiment, seeds=1)[0].spec


@pytest.mark.parametrize("variant", ["count", "delta", "published-count", "published-delta", "bayes"])
def test_the_papers_test_on_mnist(variant: str) -> None:
    """Section VI.A: 15 clients in 8 groups, test in the first round, p = .05, beta = .5, kappa = .2, 100 for validation."""
    spec = one("mnist", variant)
    assert (spec.federation.clients, spec.federation.rounds, spec.screen.round) == (15, 10, 1)
    assert design_of(spec).name == "bch-15x8"
    assert (spec.training.learning_rate, spec.training.batch_size, spec.training.local_epochs) == (0.01, 64, 1)
    assert (spec.attack.source, spec.attack.target) == (1, 7)
    assert (spec.screen.utility, spec.screen.source_label, spec.screen.silhouette_threshold) == ("recall", 1, 0.6)
    assert (spec.decode.beta, spec.decode.kappa, spec.decode.false_alarm, spec.decode.misdetection) == (
        0.5,
        0.2,
        0.05,
        0.05,
    )
    assert spec.data.validation == 100


def test_the_published_code_conditions_its_attackers_and_breaks_the_promise_by_name() -> None:
    published, stated = one("mnist", "published-delta"), one("mnist", "delta")
    assert published.attack.require_clean_group
    assert (published.decode.after_test, published.decode.allow_below_promise) == ("same-round", True)
    assert not stated.attack.require_clean_group
    assert (stated.decode.after_test, stated.decode.allow_below_promise) == ("next-round", False)


def test_graded_evidence_is_told_nothing() -> None:
    spec = one("mnist", "graded")
    assert (spec.screen.kind, spec.screen.utility, spec.screen.source_label) == ("graded", "auto", None)
    assert design_of(spec).groups == 12


def test_the_settings_of_cifar10_and_isic2019() -> None:
    cifar, isic = one("cifar10", "count"), one("isic2019", "count")
    assert (cifar.federation.rounds, cifar.screen.round, cifar.screen.silhouette_threshold) == (30, 5, 0.6)
    assert (cifar.attack.source, cifar.attack.target) == (7, 4)
    assert (isic.federation.rounds, isic.screen.round, isic.screen.silhouette_threshold) == (40, 5, 0.0)
    assert (isic.attack.source, isic.attack.target) == (0, 1)
    assert (isic.training.learning_rate, isic.training.momentum, isic.training.weight_decay) == (0.0005, 0.9, 0.0001)
    assert isic.training.focusing == 2.0
    assert one("isic2019", "count", "label-permutation").screen.utility == "balanced-accuracy"


def test_thirty_clients_take_the_30_x_12_design_at_r_of_six() -> None:
    cell = Cell(attack="label-flip", malicious=6, variant="count")
    spec = planned(cell, "mnist", experiment="thirty-clients", seeds=1)[0].spec
    assert (design_of(spec).name, spec.privacy) == ("cyclic-30x12", 6)


def test_isic_averages_over_three_placements_of_its_unusual_clients() -> None:
    cell = Cell(attack="label-flip", malicious=2, variant="oracle")
    found = planned(cell, "isic2019", experiment="targeted", seeds=2)
    assert [run.spec.attack.placement for run in found[:3]] == ["nested-neither", "nested-one", "nested-both"]
    assert len({run.spec.digest for run in found}) == 6


@pytest.mark.parametrize(
    ("dataset", "attack", "malicious", "variant", "metric", "printed"),
    [
        ("mnist", "label-flip", 5, "delta", "attack_accuracy", (0.07, 0.05)),
        ("mnist", "label-flip", 5, "published-delta", "attack_accuracy", (0.07, 0.05)),
        ("cifar10", "label-permutation", 5, "no-defence", "top1_accuracy", (49.07, 19.31)),
        ("isic2019", "label-flip", 0, "count", "balanced_accuracy", (62.91, None)),
    ],
)
def test_printed_values(
    dataset: Dataset, attack: str, malicious: int, variant: str, metric: str, printed: tuple[float, float | None]
) -> None:
    value = paper_value(dataset, Cell(attack=attack, malicious=malicious, variant=variant), metric)
    assert value is not None
    assert (value.mean, value.deviation) == printed


def test_what_the_paper_does_not_print_is_nothing() -> None:
    assert paper_value("mnist", Cell(attack="label-flip", malicious=1, variant="bayes"), "attack_accuracy") is None
    assert paper_value("mnist", Cell(attack="label-flip", malicious=7, variant="rfa"), "attack_accuracy") is None


@pytest.mark.parametrize(
    ("attack", "metric", "name"),
    [("label-flip", "attack_accuracy", "fedgt-delta"), ("label-permutation", "top1_accuracy", "rfa")],
)
def test_the_best_private_method_of_a_row(attack: str, metric: str, name: str) -> None:
    best = best_private("mnist", Cell(attack=attack, malicious=5, variant="graded"), metric)
    assert best is not None
    assert best[0] == name


def test_an_attack_that_the_paper_does_not_have_has_no_best_method() -> None:
    assert best_private("mnist", Cell(attack="random-labels", malicious=5, variant="graded"), "top1_accuracy") is None


def test_all_runs_of_a_table_are_different_runs() -> None:
    runs = [
        run
        for cell in cells("targeted", "mnist")
        for run in planned(cell, "mnist", experiment="targeted", seeds=default_seeds("mnist"))
    ]
    assert len(runs) == 10 * (6 * 9 - 1)  # the oracle of n_m = 0 is no defence
    assert len({run.spec.digest for run in runs}) == len(runs)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"experiment": "thirty-clients", "dataset": "isic2019"}, "six centres"),
        (
            {"experiment": "targeted", "dataset": "mnist", "variants": ["krum"]},
            "unknown method krum; known are no-defence",
        ),
    ],
)
def test_what_the_paper_does_not_have_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        cells(**arguments)  # type: ignore[arg-type]


def test_43_of_45_cells_of_the_robustness_table_follow_from_the_published_thresholds() -> None:
    """And exact calibration is never worse where the tests are as assumed (p = .05 decoder, noise-free tests)."""
    rows = robustness_table()
    assert len(rows) == 45
    assert sum(round(row.published, 2) == row.paper for row in rows) == 43
    exact = {row.malicious: row.exact for row in rows if row.crossover == 0.05}
    assert [round(exact[q], 4) for q in range(1, 6)] == [0.0, 0.0111, 0.0459, 0.0926, 0.1376]
    for malicious in range(1, 6):
        noisy = [row.noisy for row in rows if row.malicious == malicious]
        assert noisy == sorted(noisy)  # truly noisy tests cost more the noisier they are
