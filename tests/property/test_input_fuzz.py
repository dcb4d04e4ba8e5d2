"""Whatever arrays and files users give: an answer, or an error of ours that names the argument; never a raw error."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgt.decode import (
    CountPrior,
    IndependentPrior,
    compile,
    decision_table,
    decode,
    estimate_from_outcomes,
    estimate_malicious,
    explain,
    ranked_sets,
)
from fedgt.design import all_contaminated, contamination, from_matrix, max_malicious, read_design
from fedgt.engine.journal import RoundJournal
from fedgt.errors import FedGTError
from fedgt.evidence import (
    class_losses,
    class_steps,
    contrasts,
    damage,
    evidence_of_difference,
    graded_screen,
    label_spread,
    margin_screen,
    margins,
    outputs,
)
from fedgt.experiment import read_spec
from fedgt.grouping import Grouping
from fedgt.planning import read_plan
from fedgt.privacy import Ledger, best_in_span, exposure, largest_kept_sum, minimum_support
from fedgt.record.progress import read_progress
from fedgt.report.reading import read_run
from fedgt.screen import (
    balanced_accuracy,
    cluster_points,
    cluster_screen,
    dunn_index,
    first_component,
    layer_features,
    recall,
    silhouette_score,
    top1_accuracy,
)
from fedgt.secagg import read_policy, read_private_key, read_registry, tensor_specs, terms_in
from fedgt.train.data import read_idx
from fedgt.train.feature_files import read_features
from fedgt.types import ErrorRates, Outcomes

KINDS = ["f8", "f4", "f2", "i8", "i1", "u8", "?", "c16", "U3", "O", "M8[s]", "S2"]
SPECIAL = [0.0, 1.0, -1.0, 2.0, 0.5, np.nan, np.inf, -np.inf, 1e-300, 1e300, -1e300, 1e154]


@st.composite
def anything(draw: st.DrawFn) -> Any:
    """An array of any dtype, shape, values and order; or what is no array."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    kind = draw(st.sampled_from(KINDS))
    size = int(np.prod(shape))
    if kind.startswith("f"):
        values = draw(st.lists(st.sampled_from(SPECIAL), min_size=size, max_size=size))
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=kind).reshape(shape)
    elif kind == "O":
        array = np.empty(shape, dtype=object)
        array[...] = draw(st.sampled_from([None, "a", 10**400]))
    elif kind in ("U3", "S2"):
        array = np.full(shape, "1", dtype=kind)
    elif kind == "M8[s]":
        array = np.zeros(shape, dtype=kind)
    else:
        bits = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        array = np.array(bits).reshape(shape).astype(kind)
    how = draw(st.integers(0, 4))
    if how == 1:
        return np.asfortranarray(array)
    if how == 2:
        return array[::-1] if array.ndim else array
    if how == 3:
        return array.tolist()
    if how == 4:
        return draw(st.sampled_from([array, None, "x", [], [[1], [1, 2]], 3, np.float64(2), {"a": 1}, 10**400, True]))
    return array


number = st.one_of(
    st.integers(-3, 8), st.sampled_from(SPECIAL), st.sampled_from([None, "1", True, 10**400, np.int64(2)])
)
MATRIX = [[1, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 1]]
DESIGN = from_matrix(MATRIX)
RATES = ErrorRates.symmetric(0.05)
PARTS = contrasts(np.eye(5), np.ones(5))
LOGITS = np.arange(12.0).reshape(4, 3) % 5
LABELS = np.array([0, 1, 2, 1])
FOUR = np.random.default_rng(0).normal(size=(5, 4, 4))


def clusters(points: Any, seed: Any) -> Any:
    return cluster_points(points, max_clusters=3, silhouette_threshold=0.6, restarts=1, seed=seed)


def screen(layer: Any, utilities: Any, erased: Any, size: Any) -> Any:
    return cluster_screen(
        layer, utilities, erased=erased, max_group_size=size, silhouette_threshold=0.6, restarts=1, seed=0
    )


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "from_matrix": (from_matrix, (MATRIX,)),
    "max_malicious": (lambda kappa: max_malicious(DESIGN, kappa), (0.2,)),
    "contamination": (lambda matrix: contamination(from_matrix(matrix)).probability, (MATRIX,)),
    "all_contaminated": (lambda matrix: all_contaminated(from_matrix(matrix)), (MATRIX,)),
    "restricted": (DESIGN.restricted, ([0, 1],)),
    "Outcomes": (lambda values: Outcomes(values=values), ([0, 1, -1],)),
    "ErrorRates": (lambda a, b: ErrorRates(false_alarm=a, misdetection=b), (0.1, 0.2)),
    "IndependentPrior": (lambda values: IndependentPrior(prevalence=values), ([0.1] * 4,)),
    "CountPrior": (lambda values: CountPrior(weights=values), ([0.5, 0.5],)),
    "CountPrior.uniform": (CountPrior.uniform, (2,)),
    "decode": (
        lambda values, beta, kappa, largest: decode(
            DESIGN, Outcomes(values=values), rates=RATES, beta=beta, kappa=kappa, largest=largest
        ),
        ([0, 1, 1], 0.5, 0.2, 1),
    ),
    "decision_table": (
        lambda values: decision_table(DESIGN, values, rates=RATES, strategy="bayes"),
        (np.array([[0, 1, 1]], dtype=np.int8),),
    ),
    "decode_batch": (
        lambda values: compile(DESIGN, RATES, CountPrior.uniform(2)).decode_batch(values).log_odds,
        (np.array([[0, 1, 1]], dtype=np.int8),),
    ),
    "estimate_malicious": (
        lambda kappa, largest: estimate_malicious(DESIGN, Outcomes.parse("011"), kappa=kappa, largest=largest),
        (0.2, 1),
    ),
    "estimate_from_outcomes": (
        lambda values: estimate_from_outcomes(DESIGN, values, RATES),
        (np.array([[0, 1, 1]], dtype=np.int8),),
    ),
    "explain": (
        lambda values: explain(DESIGN, Outcomes(values=values), RATES, CountPrior.uniform(2)),
        ([0, 1, 1],),
    ),
    "ranked_sets": (
        lambda count: ranked_sets(DESIGN, Outcomes.parse("011"), RATES, CountPrior.uniform(2), count=count),
        (3,),
    ),
    "class_losses": (class_losses, (LOGITS, LABELS)),
    "margins": (margins, (LOGITS, LABELS)),
    "outputs": (outputs, (LOGITS, LABELS)),
    "class_steps": (class_steps, (LOGITS, LOGITS, LABELS)),
    "contrasts": (contrasts, (np.eye(4), np.ones(4))),
    "damage": (lambda losses: damage(PARTS, losses), (np.eye(5),)),
    "graded_screen": (
        lambda features, losses, weights, samples, erased: graded_screen(
            features, losses, weights=weights, samples=samples, erased=erased
        ),
        (FOUR, np.abs(FOUR[:, 0]), np.eye(5), np.ones(5), np.zeros(5, dtype=bool)),
    ),
    "margin_screen": (
        lambda values, losses, classes, weights, erased: margin_screen(
            values, losses, classes=classes, weights=weights, erased=erased
        ),
        (FOUR, np.abs(FOUR[:, 0]), np.arange(4), np.eye(5), np.zeros(5, dtype=bool)),
    ),
    "label_spread": (
        lambda values, start, steps, weights, samples, counts: label_spread(
            values, start, steps=steps, weights=weights, samples=samples, counts=counts
        ),
        (FOUR, FOUR[0], FOUR[:4], np.eye(5), np.ones(5), np.ones(4)),
    ),
    "evidence_of_difference": (
        lambda layer, weights, samples, erased: evidence_of_difference(
            layer, weights=weights, samples=samples, erased=erased
        ),
        (FOUR.reshape(5, -1), np.eye(5), np.ones(5), np.zeros(5, dtype=bool)),
    ),
    "layer_features": (layer_features, (FOUR, 1)),
    "first_component": (first_component, (FOUR[:, 0],)),
    "cluster_points": (clusters, (FOUR[:, 0], 0)),
    "cluster_screen": (screen, (FOUR[:, 0], np.arange(5.0), np.zeros(5, dtype=bool), 3)),
    "silhouette_score": (silhouette_score, (FOUR[:, 0], [0, 0, 1, 1, 1])),
    "dunn_index": (dunn_index, (FOUR[:, 0], [0, 0, 1, 1, 1])),
    "recall": (recall, (LABELS, LABELS, 1)),
    "top1_accuracy": (top1_accuracy, (LABELS, LABELS)),
    "balanced_accuracy": (balanced_accuracy, (LABELS, LABELS)),
    "minimum_support": (minimum_support, (MATRIX,)),
    "exposure": (lambda rows, colluding: exposure(rows, colluding=colluding), (MATRIX, 0)),
    "best_in_span": (lambda rows, target: best_in_span(rows, target=target), (MATRIX, np.ones(4))),
    "largest_kept_sum": (
        lambda rows, weights, kept, privacy: largest_kept_sum(rows, weights=weights, kept=kept, privacy=privacy),
        (MATRIX, np.ones(4), [0, 1, 2], 2),
    ),
    "tensor_specs": (lambda array: tensor_specs({"w": array}), (np.zeros(3),)),
    "Ledger": (lambda promised: Ledger(clients=["a", "b"], promised=promised), (1,)),
    "Grouping": (lambda clients: Grouping(design=DESIGN, clients=clients), (("a", "b", "c", "d"),)),
}

SCORES, ROWS = r"\b(scores?|logits)\b", r"\brows?\b"
NAMES: dict[str, tuple[str, ...]] = {
    "from_matrix": ("^design ",),
    "max_malicious": ("^kappa",),
    "contamination": ("^design ",),
    "all_contaminated": ("^design ",),
    "restricted": (r"\bgroups?\b",),
    "Outcomes": ("^outcomes",),
    "ErrorRates": ("false alarm rate", "misdetection rate"),
    "IndependentPrior": ("prevalence",),
    "CountPrior": ("^weights",),
    "CountPrior.uniform": ("^largest",),
    "decode": (r"\boutcomes?\b", "beta", "kappa", "largest"),
    "decision_table": (r"\boutcomes?\b",),
    "decode_batch": (r"\boutcomes?\b",),
    "estimate_malicious": ("kappa", "largest"),
    "estimate_from_outcomes": (r"\boutcomes?\b",),
    "explain": (r"\boutcomes?\b",),
    "ranked_sets": ("^count",),
    "class_losses": (SCORES, r"\blabels?\b"),
    "margins": (SCORES, r"\blabels?\b"),
    "outputs": (SCORES, r"\blabels?\b"),
    "class_steps": (SCORES, r"\binputs\b", r"\blabels?\b"),
    "contrasts": (r"\bweights\b", r"\bsample counts\b"),
    "damage": (r"\blosses\b",),
    "graded_screen": (r"\bfeatures\b", r"\blosses\b", r"\bweights\b", r"\bsample counts\b", r"\berasures\b"),
    "margin_screen": (r"\bmargins\b", r"\blosses\b", r"\bclasses\b", r"\bweights\b", r"\berasures\b"),
    "label_spread": (
        r"\bmargins\b",
        r"\b(start|before)\b",
        r"\bsteps\b",
        r"\bweights\b",
        r"\bsample counts\b",
        r"\bcounts\b",
    ),
    "evidence_of_difference": (r"\bgroup means\b", r"\bweights\b", r"\bsample counts\b", r"\berasures\b"),
    "layer_features": ("layer", "source label"),
    "first_component": (r"\b(group means|features)\b",),
    "cluster_points": (r"\bpoints?\b", "seed"),
    "cluster_screen": (r"\bgroup means\b", r"\butilities\b", r"\berasures\b", "max_group_size|largest group"),
    "silhouette_score": (r"\bpoints?\b", r"\blabels?\b"),
    "dunn_index": (r"\bpoints?\b", r"\blabels?\b"),
    "recall": (r"\bpredict", r"\blabels?\b", "source label"),
    "top1_accuracy": (r"\bpredict", r"\blabels?\b"),
    "balanced_accuracy": (r"\bpredict", r"\blabels?\b"),
    "minimum_support": ("revealed rows",),
    "exposure": ("revealed rows", "collud"),
    "best_in_span": ("revealed rows", "target"),
    "largest_kept_sum": (ROWS, r"\bweights?\b", r"\bkept\b", "privacy"),
    "tensor_specs": ("tensor",),
    "Ledger": ("^privacy",),
    "Grouping": (r"\bclients?\b",),
}
"""What every message calls each argument of `CALLS`, in the same order."""


def message(call: Callable[..., Any], *arguments: Any) -> str:
    """What an error of ours says; empty if there was an answer. Any other error or warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            call(*arguments)
        except FedGTError as error:
            return str(error) or "nothing"
    return ""


def test_every_argument_has_a_name_that_its_errors_must_use() -> None:
    assert {name: len(right) for name, (_, right) in CALLS.items()} == {name: len(one) for name, one in NAMES.items()}


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data())
@settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))
def test_any_argument_of_a_public_function_gives_an_answer_or_an_error_of_ours(name: str, data: st.DataObject) -> None:
    call, right = CALLS[name]
    call(*right)
    arguments = list(right)
    place = data.draw(st.integers(0, len(right) - 1))
    scalar = not isinstance(right[place], np.ndarray | list | tuple)
    arguments[place] = data.draw(st.one_of(number, anything()) if scalar else anything())
    said = message(call, *arguments)
    assert said != "nothing"
    assert not said or re.search(NAMES[name][place], said), said
    assert "np." not in said.replace("np.asarray(", "")


@pytest.mark.parametrize(
    "name", ["class_losses", "margins", "outputs", "contrasts", "graded_screen", "first_component"]
)
def test_the_order_and_width_of_an_array_change_no_answer(name: str) -> None:
    call, right = CALLS[name]

    def told(arguments: list[Any]) -> Any:
        found = call(*arguments)
        return getattr(found, "projection", getattr(found, "transform", found))

    expected = told(list(right))
    for place, value in enumerate(right):
        if value.dtype.kind == "f":
            for same in (np.asfortranarray(value), value.tolist(), np.repeat(value, 2, axis=0)[::2]):
                np.testing.assert_allclose(told([*right[:place], same, *right[place + 1 :]]), expected, atol=1e-12)


READERS: dict[str, Callable[[Path], Any]] = {
    "matrix.csv": read_design,
    "matrix.json": read_design,
    "plan.json": read_plan,
    "policy.toml": read_policy,
    "registry.toml": read_registry,
    "spec.toml": read_spec,
    "result.json": lambda path: read_run(path.parent),
    "progress.json": lambda path: read_progress(path.parent),
    "ledger.json": Ledger.load,
    "terms.json": terms_in,
    "private.pem": lambda path: read_private_key(path, "north"),
    "images-idx3-ubyte": read_idx,
    "rounds": RoundJournal,
}

WORDS = ("0", "1", ",", "1,0,1", "[", "]", "{", "}", '"matrix"', ":", "null", "NaN", "1e999", "-1", "=", "#", "true")
LINES = ("privacy", "[design]", "[attack]", "malicious = 3", "matrix = [[1,0],[0,1]]", "9" * 5000)
PIECES = st.sampled_from([*WORDS, *LINES, "\n", "\ufeff", "\x00", "\ud7ff"])


@pytest.mark.parametrize("name", READERS)
@given(
    content=st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(lambda parts: "".join(parts).encode()))
)
@settings(max_examples=2 * settings().max_examples, suppress_health_check=list(HealthCheck))
def test_any_content_of_a_file_is_read_or_is_an_error_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"fuzz {name}"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    path.chmod(0o600)
    said = message(READERS[name], path)
    assert not said or path.stem in said
    assert "np." not in said


@given(data=st.data())
@settings(max_examples=80, suppress_health_check=list(HealthCheck))
def test_any_arrays_in_a_file_of_features_are_read_or_are_an_error_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    right: dict[str, Any] = {
        "features": np.ones((6, 3), dtype=np.float32),
        "labels": np.array([0, 1, 0, 1, 0, 1]),
        "test": np.array([0, 0, 0, 0, 1, 1], dtype=bool),
        "centres": np.zeros(6, dtype=np.int64),
    }
    drawn = data.draw(anything().filter(lambda one: isinstance(one, np.ndarray)))
    right[data.draw(st.sampled_from(sorted(right)))] = drawn
    folder = tmp_path_factory.getbasetemp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(folder / "cifar10-lite0.npz", **right)
    said = message(read_features, folder, "cifar10-lite0")
    assert not said or "cifar10-lite0" in said
