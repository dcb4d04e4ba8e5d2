"""Whole test rounds with graded evidence, on clients whose updates are known.

The model has a tensor `marker` to which client j adds 1 at place j: after the round it shows the weight of every client.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedgt.design import named_design
from fedgt.errors import SpecError
from fedgt.evidence import GradedDecoding, GradedScreen
from fedgt.federation import DecodeSettings, Federation, ScreenKind, ScreenSettings, Validation
from fedgt.federation.round import ScreeningRound, screening_round
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult
from fedgt.types import FloatArray, Parameters

Make = Callable[..., Any]
Update = dict[str, npt.NDArray[np.float64]]

CLASSES, INPUTS = 4, 40
NAMES = tuple(f"c{j:02d}" for j in range(15))
GROUPING = Grouping(design=named_design("graded-15x10-b"), clients=NAMES)
START: Parameters = {"weight": np.zeros((CLASSES, INPUTS)), "marker": np.zeros(15)}
PROTOTYPES = np.random.default_rng(99).normal(size=(CLASSES, INPUTS)) / INPUTS**0.5
LABELS = np.repeat(np.arange(CLASSES), 10).astype(np.int64)
IMAGES = PROTOTYPES[LABELS] + 0.05 * np.random.default_rng(98).normal(size=(40, INPUTS))
VALIDATION = Validation(
    logits=lambda parameters: np.asarray(IMAGES @ parameters["weight"].T, dtype=np.float64), labels=LABELS
)


def updates(malicious: set[str], *, seed: int = 0, noise: float = 0.1, size: float = 3.0) -> dict[str, Update]:
    """Everybody learns the prototypes; the malicious take class 0 for class 1."""
    rng = np.random.default_rng(seed)
    made = {}
    for j, name in enumerate(NAMES):
        weight = 3.0 * PROTOTYPES + noise * rng.normal(size=PROTOTYPES.shape)
        if name in malicious:
            weight[[0, 1]] = weight[[0, 1]] + size * np.array([-PROTOTYPES[0], PROTOTYPES[0]])
        made[name] = {"weight": weight, "marker": np.eye(15)[j]}
    return made


def screened(
    federation: Federation,
    *,
    kind: ScreenKind = "graded",
    present: tuple[str, ...] = NAMES,
    features: Any = "weights",
    layer: str = "weight",
    grouping: Grouping = GROUPING,
    start: Parameters = START,
    **settings: Any,
) -> ScreeningRound:
    return screening_round(
        federation,
        start,
        round=1,
        grouping=grouping,
        present=present,
        validation=VALIDATION,
        screen=ScreenSettings(kind=kind, features=features, layer=layer),
        decoding=DecodeSettings(**settings),
    )


def weights_of(result: ScreeningRound) -> FloatArray:
    """The weight of every client's update in the new global model."""
    return np.asarray(result.result.parameters["marker"], dtype=np.float64)


@pytest.mark.parametrize("features", ["weights", "margins"])
def test_the_attackers_are_named_and_the_new_model_holds_nothing_of_them_and_opens_nothing_more(
    bench: Make, features: str
) -> None:
    made = bench(updates({"c02", "c07", "c11"}), privacy=4)
    result = screened(made.federation, features=features)
    assert result.exclusion.excluded == ("c02", "c07", "c11")
    assert result.result.secure_sums == len(result.result.records) == 10
    shares = weights_of(result)
    np.testing.assert_allclose(shares[[2, 7, 11]], 0.0, atol=1e-5)
    assert shares.sum() == pytest.approx(1.0, abs=1e-5)
    account = made.federation.ledger.account()
    assert (account.strict, account.cautious) == (4, 4)
    assert result.measured.label is not None
    assert 0 in result.measured.label.labels


@pytest.mark.parametrize("features", ["weights", "outputs"])
def test_whoever_is_asked_for_no_second_opinion_says_so(bench: Make, features: str) -> None:
    grouping = Grouping(design=named_design("graded-15x8-b"), clients=NAMES)
    result = screened(bench(updates(set()), privacy=4).federation, features=features, grouping=grouping)
    assert isinstance(result.screen, GradedScreen)
    said = "no second opinion, because what the classification layer sees is not known" in result.screen.reason
    assert said == (features == "weights")


def test_with_nobody_malicious_the_new_model_is_the_mean_of_everybody(bench: Make) -> None:
    result = screened(bench(updates(set()), privacy=4).federation)
    assert result.exclusion.excluded == ()
    assert weights_of(result).sum() == pytest.approx(1.0, abs=1e-5)
    assert (weights_of(result) > 0).all()
    assert result.measured.label is None


def test_the_largest_sum_is_over_kept_clients_only_and_keeps_the_promise(bench: Make) -> None:
    made = bench(updates({"c02", "c07"}), privacy=4)
    result = screened(made.federation, after_test="largest-sum")
    assert result.exclusion.excluded == ("c02", "c07")
    (record,) = [r for r in result.result.records if r.purpose == "largest-sum"]
    assert record.status == "open"
    assert len(record.members) >= 4
    assert not {"c02", "c07"} & set(record.members)
    expected = [1.0 / len(record.members) if name in record.members else 0.0 for name in NAMES]
    np.testing.assert_allclose(weights_of(result), expected, atol=1e-5)
    strict = made.federation.ledger.account().strict
    assert strict is not None
    assert strict >= 4


def test_the_same_round_sum_is_refused_below_the_promise_and_replaced_or_opened_by_name(bench: Make) -> None:
    refused = bench(updates({"c00", "c01"}), privacy=4)
    result = screened(refused.federation, after_test="same-round")
    record = result.result.records[-1]
    assert (record.purpose, record.status) == ("same-round", "refused")
    assert "the promise is 4" in record.reason
    assert refused.federation.ledger.account().strict == 4
    np.testing.assert_allclose(weights_of(result)[[0, 1]], 0.0, atol=1e-5)

    opened = bench(updates({"c00", "c01"}), privacy=4)
    result = screened(opened.federation, after_test="same-round", allow_below_promise=True)
    assert result.result.records[-1].status == "open"
    expected = np.where(np.isin(np.arange(15), [0, 1]), 0.0, 1 / 13)
    np.testing.assert_allclose(weights_of(result), expected, atol=1e-5)
    account = opened.federation.ledger.account()
    assert account.overridden
    assert account.strict is not None
    assert account.strict < 4


def test_negative_groups_are_for_one_bit_a_group_and_hold_no_excluded_client(bench: Make, grouping: Grouping) -> None:
    made = bench(updates({"c05"}, size=16.0), privacy=4)
    result = screened(made.federation, kind="significant-clusters", grouping=grouping, after_test="negative-groups")
    assert isinstance(result.screen, ScreenResult)
    assert result.exclusion.excluded == ("c05",)
    clean = grouping.design.matrix[result.screen.outcomes.values == 0]
    np.testing.assert_allclose(weights_of(result), clean.sum(axis=0) / clean.sum(), atol=1e-5)
    assert weights_of(result)[5] == pytest.approx(0.0, abs=1e-6)


def test_groups_that_differ_by_noise_only_are_all_negative_where_significance_is_asked_first(
    bench: Make, grouping: Grouping
) -> None:
    flagged = {"significant-clusters": 0, "clusters": 0}
    for seed in range(3):
        for kind in ("significant-clusters", "clusters"):
            federation = bench(updates(set(), seed=seed, noise=1.5), privacy=4).federation
            result = screened(federation, kind=kind, grouping=grouping, on_undecidable="follow-decoder")
            flagged[kind] += bool(result.exclusion.excluded)
            if kind == "significant-clusters":
                assert "no significant difference" in result.screen.reason
    assert flagged["significant-clusters"] == 0
    assert flagged["clusters"] > 0  # what the test of significance is for


def test_who_drops_out_changes_the_rows_and_the_attackers_are_still_named(bench: Make) -> None:
    made = bench(updates({"c02", "c07"}), silent={"c04": "masked"}, privacy=3)
    result = screened(made.federation)
    assert isinstance(result.screen, GradedScreen)
    assert result.screen.tested.sum() >= 8
    assert not result.grouping.design.matrix[result.screen.tested][:, 4].any()
    assert result.exclusion.excluded == ("c02", "c04", "c07")
    assert result.exclusion.verdicts[4].verdict == "untested"
    assert "c04" not in result.heard or result.heard["c04"] == 0
    np.testing.assert_allclose(weights_of(result)[[2, 4, 7]], 0.0, atol=1e-5)


def test_two_rounds_add_up_and_who_sits_in_no_further_group_keeps_its_verdict(bench: Make) -> None:
    """The second test holds six clients; the others were tested before."""
    from fedgt.design import from_matrix

    made = bench(updates({"c02", "c07"}), privacy=3)
    first = screened(made.federation)
    assert first.measured.evidence is not None
    few = np.zeros((3, 15), dtype=int)
    few[0, [0, 1, 2, 3]] = few[1, [1, 2, 3, 4]] = few[2, [0, 3, 4, 5]] = 1
    second = screening_round(
        bench(updates({"c02", "c07"}, seed=1), privacy=3).federation,
        START,
        round=2,
        grouping=Grouping(design=from_matrix(few.tolist()), clients=NAMES),
        present=NAMES,
        validation=VALIDATION,
        screen=ScreenSettings(),
        decoding=DecodeSettings(),
        earlier=[first.measured.evidence],
        heard=first.heard,
    )
    assert second.exclusion.excluded == ("c02", "c07")
    assert second.exclusion.verdicts[7].groups == ()
    assert second.exclusion.verdicts[7].verdict == "exclude"
    assert {v.verdict for v in second.exclusion.verdicts} == {"keep", "exclude"}


def test_a_dead_model_is_no_difference_and_flags_nobody(bench: Make) -> None:
    """Case 34: all clients return zeros."""
    dead = {name: {"weight": np.zeros((CLASSES, INPUTS)), "marker": np.zeros(15)} for name in NAMES}
    result = screened(bench(dead, privacy=4).federation)
    assert result.screen.status == "no-difference"
    assert "the same model" in result.screen.reason
    assert isinstance(result.decoding, GradedDecoding)
    assert result.decoding.status == "no-evidence"
    assert result.exclusion.excluded == ()


def test_when_all_clients_fail_nothing_is_compared_and_nobody_is_accused(bench: Make) -> None:
    """Case 10."""
    made = bench(updates(set()), silent=dict.fromkeys(NAMES, "masked"), privacy=4)
    result = screened(made.federation)
    assert result.screen.status == "too-few-groups"
    assert result.exclusion.halt
    assert result.exclusion.excluded == ()
    assert {v.verdict for v in result.exclusion.verdicts} == {"untested"}
    assert result.measured.evidence is None
    assert result.heard == {}


@pytest.mark.parametrize(
    ("layer", "features", "start"),
    [
        ("bias", "weights", {"weight": np.zeros((2, 3)), "bias": np.zeros(2)}),
        ("weight", "weights", {"weight": np.zeros((2, 3)), "bias": np.zeros(2)}),
        ("weight", "outputs", {"weight": np.zeros((4, 40))}),
    ],
)
def test_a_layer_with_too_few_weights_to_compare_is_refused_before_a_sum_is_opened(
    bench: Make, layer: str, features: str, start: Parameters
) -> None:
    made = bench({name: {k: np.ones_like(v, dtype=np.float64) for k, v in start.items()} for name in NAMES}, privacy=4)
    with pytest.raises(SpecError, match="more features than"):
        screened(made.federation, layer=layer, features=features, start=start)
    assert made.federation.ledger.account().strict is None
    assert {client.calls for client in made.clients.values()} == {0}


@pytest.mark.parametrize("features", ["weights", "margins"])
def test_where_no_sum_can_be_opened_nothing_is_compared_and_nobody_is_accused(bench: Make, features: str) -> None:
    result = screened(bench(updates({"c02"}), privacy=4).federation, present=NAMES[:2], features=features)
    assert isinstance(result.screen, GradedScreen)
    assert result.screen.status == "too-few-groups"
    assert "sum not opened" in result.screen.reason
    assert isinstance(result.decoding, GradedDecoding)
    assert not result.decoding.flagged.any()


def test_margins_of_a_label_that_nobody_validates_are_refused_before_a_sum_is_opened(bench: Make) -> None:
    made = bench(updates(set()), privacy=4)
    with pytest.raises(SpecError, match="source label 9 has no sample"):
        screening_round(
            made.federation,
            START,
            round=1,
            grouping=GROUPING,
            present=NAMES,
            validation=VALIDATION,
            screen=ScreenSettings(features="margins", source_label=9),
            decoding=DecodeSettings(),
        )
    assert made.federation.ledger.account().strict is None
