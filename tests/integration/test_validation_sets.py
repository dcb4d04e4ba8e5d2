"""What is wrong with a validation set is said before anybody is asked; what a sample lacks costs that sample only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.design import from_matrix, named_design
from fedgt.engine import Failure, Transport
from fedgt.errors import FedGTError
from fedgt.evidence import GradedScreen
from fedgt.federation import DecodeSettings, Federation, ScreeningRound, ScreenSettings, Validation, screening_round
from fedgt.grouping import Grouping
from fedgt.types import Parameters
from slow_cases import slow

Make = Callable[..., Any]
CLASSES, INPUTS = 5, 40
NAMES = tuple(f"c{j:02d}" for j in range(15))
GROUPING = Grouping(design=named_design("graded-15x10-b"), clients=NAMES)
ATTACKERS = {"c02", "c07", "c11"}
PROTOTYPES = np.random.default_rng(99).normal(size=(CLASSES, INPUTS)) / INPUTS**0.5
LABELS = np.repeat(np.arange(CLASSES), 10)
IMAGES = PROTOTYPES[LABELS] + 0.05 * np.random.default_rng(98).normal(size=(len(LABELS), INPUTS))
START: Parameters = {"weight": np.zeros((CLASSES, INPUTS)), "bias": np.zeros(CLASSES), "scale": np.ones(())}


@dataclass
class Counting:
    """Counts what it is asked to send."""

    inner: Transport
    messages: int = 0

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        self.messages += len(messages)
        return self.inner.exchange(stage, messages, timeout)


def updates(seed: int = 0) -> dict[str, dict[str, npt.NDArray[np.float64]]]:
    """Everybody learns the prototypes; the attackers take class 0 for class 1."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in NAMES:
        weight = 3.0 * PROTOTYPES + 0.1 * rng.normal(size=PROTOTYPES.shape)
        if name in ATTACKERS:
            weight[[0, 1]] += 3.0 * np.array([-PROTOTYPES[0], PROTOTYPES[0]])
        made[name] = {"weight": weight, "bias": np.zeros(CLASSES), "scale": np.zeros(())}
    return made


def logits(parameters: Parameters, images: npt.NDArray[np.float64] = IMAGES) -> npt.NDArray[np.float64]:
    return np.asarray(images @ parameters["weight"].T, dtype=np.float64)


def log_probabilities(parameters: Parameters) -> npt.NDArray[np.float64]:
    scores = 4.0 * logits(parameters)
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True), dtype=np.float64)


def screened(
    federation: Federation, validation: Validation, grouping: Grouping = GROUPING, **settings: Any
) -> ScreeningRound:
    return screening_round(
        federation,
        START,
        round=1,
        grouping=grouping,
        present=NAMES,
        validation=validation,
        screen=ScreenSettings(**settings),
        decoding=DecodeSettings(),
    )


def refused(bench: Make, validation: Validation, grouping: Grouping = GROUPING, **settings: Any) -> str:
    """The message, after it was made sure that nobody was asked anything and nothing was entered in the ledger."""
    made = bench(updates())
    counting = Counting(made.federation.transport)
    with pytest.raises(FedGTError) as caught:
        screened(replace(made.federation, transport=counting), validation, grouping, **settings)
    assert counting.messages == 0
    assert not any(client.calls for client in made.clients.values())
    return str(caught.value)


@pytest.mark.parametrize("kind", ["graded", "clusters", "significant-clusters"])
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (LABELS + 1, "labels from 1 to 5 for 5 classes"),
        (LABELS - 1, "labels from -1"),
        (LABELS.astype(np.float64), "dtype float64"),
        (LABELS.astype(str), "dtype <U"),
        (LABELS > 2, "dtype bool"),
        (LABELS[:, None], "labels of shape (50, 1)"),
        (np.eye(CLASSES, dtype=int)[LABELS], "labels of shape (50, 5)"),
        (LABELS[:0], "labels of shape (0,)"),
        (LABELS[:-1], "labels of shape (49,)"),
        ([1, [2, 3]], "labels: no array"),
        ([None] * len(LABELS), "Python objects"),
    ],
)
def test_labels_that_do_not_fit_the_model_are_refused_before_anybody_is_asked(
    bench: Make, labels: Any, said: str, kind: str
) -> None:
    assert said in refused(bench, Validation(logits=logits, labels=labels), kind=kind)


@pytest.mark.parametrize("kind", ["graded", "clusters"])
@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (lambda p: logits(p)[:, 0], "logits of shape (50,)"),
        (lambda p: logits(p)[:, :1], "one per class is needed"),
        (lambda p: logits(p)[:, :4], "labels from 0 to 4 for 4 classes"),
        (lambda p: logits(p)[:, :, None], "logits of shape (50, 5, 1)"),
        (lambda p: logits(p).T, "logits of shape (5, 50)"),
        (lambda p: logits(p).astype(str), "dtype <U"),
        (lambda p: logits(p) * 1j, "dtype complex128"),
        (lambda p: None, "Python objects"),
        (lambda p: np.full_like(logits(p), np.nan), "no validation sample a finite score"),
        (lambda p: np.full_like(logits(p), -np.inf), "no validation sample a finite score"),
    ],
)
def test_scores_that_do_not_fit_the_labels_are_refused_before_anybody_is_asked(
    bench: Make, scores: Any, said: str, kind: str
) -> None:
    assert said in refused(bench, Validation(logits=scores, labels=LABELS), kind=kind)


def test_a_binary_model_with_one_logit_is_told_what_to_give(bench: Make) -> None:
    binary = Validation(logits=lambda p: logits(p)[:, :1], labels=np.zeros(len(LABELS), dtype=int))
    assert "[0, logit]" in refused(bench, binary)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"source_label": 7}, "source label 7 has no sample"),
        ({"source_label": 7, "kind": "clusters"}, "source label 7"),
        ({"source_label": 7, "kind": "clusters", "utility": "recall"}, "source label 7"),
        ({"source_label": 9, "features": "outputs"}, "source label 9"),
        ({"source_label": 1.5}, "source_label = 1.5"),
        ({"source_label": "1"}, "source_label = '1'"),
        ({"source_label": True}, "source_label = True"),
        ({"kind": "clusters", "utility": "recall"}, "needs screen.source_label"),
        ({"kind": "clusters", "utility": "f1"}, "utility = 'f1'"),
        ({"kind": "graded", "utility": "top1"}, "is not for graded evidence"),
        ({"layer": "scale"}, "shape ()"),
        ({"layer": "scale", "kind": "clusters"}, "shape ()"),
        ({"layer": "bias", "kind": "clusters"}, "classes, inputs"),
        ({"layer": "head"}, "no tensor of the model"),
    ],
)
def test_a_label_utility_or_layer_that_is_not_there_is_refused_before_anybody_is_asked(
    bench: Make, settings: dict[str, Any], said: str
) -> None:
    assert said in refused(bench, Validation(logits=logits, labels=LABELS), **settings)


def test_a_decoder_that_cannot_be_had_is_refused_before_anybody_is_asked(bench: Make) -> None:
    wide = from_matrix(np.random.default_rng(0).random((40, 60)) < 0.5, name="wide")
    names = tuple(f"c{j:02d}" for j in range(60))
    made = bench(dict.fromkeys(names, updates()["c00"]))
    counting = Counting(made.federation.transport)
    with pytest.raises(FedGTError, match="'wide'"):
        screened(
            replace(made.federation, transport=counting),
            Validation(logits=logits, labels=LABELS),
            Grouping(design=wide, clients=names),
            kind="clusters",
        )
    assert counting.messages == 0


@pytest.mark.parametrize(
    "inputs", [lambda _: IMAGES[:-1], lambda _: IMAGES.ravel(), lambda _: None, lambda _: IMAGES[:, :, None]]
)
def test_inputs_that_do_not_fit_the_samples_are_refused_before_anybody_is_asked(bench: Make, inputs: Any) -> None:
    assert "inputs" in refused(bench, Validation(logits=logits, labels=LABELS, inputs=inputs))


def test_groups_that_graded_evidence_cannot_compare_are_refused_before_anybody_is_asked(bench: Make) -> None:
    two = from_matrix([[1] * 8 + [0] * 7, [0] * 8 + [1] * 7], name="halves")
    said = refused(bench, Validation(logits=logits, labels=LABELS), Grouping(design=two, clients=NAMES))
    assert "'halves' have 1 independent differences" in said


def test_a_client_without_samples_is_refused_before_anybody_is_asked(bench: Make) -> None:
    made = bench(updates(), samples=dict.fromkeys(NAMES, 10) | {"c03": 0}, weighting="equal")
    counting = Counting(made.federation.transport)
    with pytest.raises(FedGTError, match="'c03' has 0 samples"):
        screened(replace(made.federation, transport=counting), Validation(logits=logits, labels=LABELS))
    assert counting.messages == 0


@pytest.mark.parametrize("features", ["weights", "outputs", "margins"])
@pytest.mark.parametrize("bad", [np.nan, *slow(np.inf)])
def test_a_sample_without_a_score_is_named_and_the_rest_is_tested(bench: Make, features: str, bad: float) -> None:
    images = IMAGES.copy()
    images[33, 4] = bad

    def scores(parameters: Parameters) -> npt.NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            return logits(parameters, images)

    result = screened(
        bench(updates()).federation,
        Validation(logits=scores, labels=LABELS, inputs=lambda _: IMAGES),
        features=features,
    )
    assert result.exclusion.excluded == tuple(sorted(ATTACKERS))
    assert "sample 33 (class 3) left out" in result.screen.reason


def rounded(parameters: Parameters) -> npt.NDArray[np.float64]:
    """Log-probabilities of which those below 1e-6 were taken for 0."""
    scores = log_probabilities(parameters)
    return np.where(scores < np.log(1e-6), -np.inf, scores)


@pytest.mark.parametrize("features", ["weights", "outputs"])
def test_probabilities_that_were_rounded_to_zero_leave_no_group_out(bench: Make, features: str) -> None:
    result = screened(
        bench(updates()).federation,
        Validation(logits=rounded, labels=LABELS, inputs=lambda _: IMAGES),
        features=features,
    )
    assert isinstance(result.screen, GradedScreen)
    assert result.screen.tested.all()
    assert result.exclusion.excluded == tuple(sorted(ATTACKERS))
    assert "scores of minus infinity" in result.screen.reason


def test_margins_of_rounded_probabilities_accuse_nobody(bench: Make) -> None:
    """Raised scores move less than the models do: their margins made innocent clients certain attackers."""
    validation = Validation(logits=rounded, labels=LABELS, inputs=lambda _: IMAGES)
    result = screened(bench(updates()).federation, validation, features="margins")
    assert result.exclusion.excluded == ()
    assert "probabilities of 0" in result.screen.reason


def test_one_probability_of_zero_costs_the_margins_one_sample(bench: Make) -> None:
    def scores(parameters: Parameters) -> npt.NDArray[np.float64]:
        found = logits(parameters).copy()
        found[33, 1] = -np.inf
        return found

    validation = Validation(logits=scores, labels=LABELS, inputs=lambda _: IMAGES)
    result = screened(bench(updates()).federation, validation, features="margins")
    assert result.exclusion.excluded == tuple(sorted(ATTACKERS))


@pytest.mark.parametrize("spoilt", [9, 10])
@pytest.mark.parametrize("kind", ["graded", "clusters", "significant-clusters"])
def test_models_without_any_score_end_the_test_cleanly_however_many_they_are(
    bench: Make, spoilt: int, kind: str
) -> None:
    calls = 0

    def scores(parameters: Parameters) -> npt.NDArray[np.float64]:
        nonlocal calls
        calls += 1
        # The first two calls are the check and the first model.
        return np.full((len(LABELS), CLASSES), np.nan) if calls > 12 - spoilt else logits(parameters)

    result = screened(bench(updates()).federation, Validation(logits=scores, labels=LABELS), kind=kind)
    assert result.exclusion.halt
    assert result.exclusion.excluded == ()
    assert "not finite" in result.screen.reason


def test_a_layer_of_a_convolution_is_compared_as_its_rows(bench: Make) -> None:
    made = {
        name: {key: value.reshape(CLASSES, INPUTS, 1, 1) if key == "weight" else value for key, value in one.items()}
        for name, one in updates().items()
    }
    start = dict(START) | {"weight": np.zeros((CLASSES, INPUTS, 1, 1))}
    for kind, expected in (("graded", tuple(sorted(ATTACKERS))), ("clusters", None)):
        result = screening_round(
            bench(made).federation,
            start,
            round=1,
            grouping=GROUPING,
            present=NAMES,
            validation=Validation(
                logits=lambda p: np.asarray(IMAGES @ p["weight"].reshape(CLASSES, INPUTS).T), labels=LABELS
            ),
            screen=ScreenSettings(kind=kind),
            decoding=DecodeSettings(),
        )
        assert expected in (None, result.exclusion.excluded)
