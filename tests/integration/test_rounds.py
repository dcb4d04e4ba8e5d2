"""Whole rounds through the real protocol, with clients whose updates are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings, Federation, RfaSettings, ScreenSettings, SumSettings, Validation, rfa_round
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.grouping import Grouping
from fedgt.screen import ScreenResult
from fedgt.types import FloatArray, Outcomes, Parameters
from slow_cases import slow

Make = Callable[..., Any]
START: Parameters = {"weight": np.zeros((2, 3)), "bias": np.zeros(2)}


def update_of(value: float) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    return {"weight": np.full((2, 3), value), "bias": np.full(2, value)}


def honest_and_malicious(malicious: set[str]) -> dict[str, dict[str, np.ndarray[Any, np.dtype[np.float64]]]]:
    """Malicious updates point the other way; honest ones differ a little."""
    rng = np.random.default_rng(0)
    names = [f"c{j:02d}" for j in range(15)]
    return {name: update_of((-1.0 if name in malicious else 1.0) + 0.001 * rng.normal()) for name in names}


LABELS = np.zeros(100, dtype=np.int64)


def logits(parameters: Parameters) -> FloatArray:
    """The mean bias says how many of 100 samples are classified right: 1 -> all, each malicious member costs some."""
    right = int(np.clip(round(100 * float(parameters["bias"].mean())), 0, 100))
    return np.where((np.arange(100) < right)[:, None], [[1.0, 0.0]], [[0.0, 1.0]])


VALIDATION = Validation(logits=logits, labels=LABELS)
SCREEN = ScreenSettings(kind="clusters", utility="top1")


def outcomes_of(result: ScreeningRound) -> Outcomes:
    assert isinstance(result.screen, ScreenResult)
    return result.screen.outcomes


def screened(federation: Federation, grouping: Grouping, **settings: Any) -> ScreeningRound:
    present = settings.pop("present", grouping.clients)
    return screening_round(
        federation,
        START,
        round=1,
        grouping=grouping,
        present=present,
        validation=VALIDATION,
        screen=SCREEN,
        decoding=DecodeSettings(**settings),
    )


def test_a_training_round_is_the_weighted_mean_within_the_fixed_point_step(bench: Make) -> None:
    """Case 11: weights 10, 1000, 1 on 1, 2, 3 give 2013 / 1011."""
    made = bench(
        {"a": update_of(1), "b": update_of(2), "c": update_of(3)}, samples={"a": 10, "b": 1000, "c": 1}, privacy=3
    )
    result = training_round(made.federation, START, round=1, members=["c", "a", "b"])
    np.testing.assert_allclose(result.parameters["bias"], 2013 / 1011, atol=2**-24)
    (record,) = result.records
    assert record.members == ("a", "b", "c")
    assert record.weights == (10.0, 1000.0, 1.0)
    assert record.status == "open"
    assert result.bytes_up > 0
    assert result.bytes_down > 0


def test_equal_weighting_ignores_the_sample_counts(bench: Make) -> None:
    made = bench({"a": update_of(1), "b": update_of(2)}, samples={"a": 10, "b": 1000}, weighting="equal")
    result = training_round(made.federation, START, round=1, members=["a", "b"])
    np.testing.assert_allclose(result.parameters["bias"], 1.5, atol=2**-24)
    assert result.warnings == ()


def test_a_client_that_dominates_its_group_is_warned_about_with_the_effective_number_of_members(bench: Make) -> None:
    """Case 40: weights 1, 1, 1, 100."""
    made = bench({n: update_of(1) for n in "abcd"}, samples={"a": 1, "b": 1, "c": 1, "d": 100}, privacy=4)
    result = training_round(made.federation, START, round=1, members=list("abcd"))
    (warning,) = result.warnings
    assert "1.06 equal members instead of 4" in warning
    assert "client d dominates" in warning


def test_clipped_entries_are_counted_and_reported(bench: Make) -> None:
    """Case 1."""
    made = bench({n: update_of(9.0) for n in "abc"}, privacy=2)
    result = training_round(made.federation, START, round=1, members=list("abc"))
    assert result.clipped == 24
    assert "24 entries of updates were clipped to +-8" in result.warnings[0]
    np.testing.assert_allclose(result.parameters["bias"], 8.0, atol=2**-24)


def test_a_promise_above_the_number_of_kept_clients_refuses_the_training_sum(bench: Make) -> None:
    made = bench({n: update_of(1) for n in "abcd"}, privacy=4)
    result = training_round(made.federation, START, round=1, members=list("abc"))
    assert result.records[0].status == "refused"
    assert "the promise is 4" in result.records[0].reason
    np.testing.assert_array_equal(result.parameters["bias"], START["bias"])
    assert "the global model stays as it was" in result.warnings[0]


def test_all_clients_failing_leaves_the_model_and_keeps_every_id(bench: Make, grouping: Grouping) -> None:
    """Case 10."""
    names = list(grouping.clients)
    made = bench(honest_and_malicious(set()), silent=dict.fromkeys(names, "masked"), privacy=4)
    result = screened(made.federation, grouping)
    assert result.decoding.status == "no-outcomes"
    assert str(outcomes_of(result)) == "????????"
    assert [v.verdict for v in result.exclusion.verdicts] == ["untested"] * 15
    assert result.exclusion.halt
    assert result.exclusion.excluded == ()
    assert {v.client for v in result.exclusion.verdicts} == set(names)
    np.testing.assert_array_equal(result.result.parameters["bias"], START["bias"])
    training = training_round(made.federation, START, round=2, members=names)
    assert training.records[0].status == "erased"
    assert "no usable client" in training.warnings[0]


def test_outcomes_speak_about_the_members_who_were_in_the_sum(bench: Make, grouping: Grouping) -> None:
    """The attacker is absent: nobody else may be accused for its groups, and it gets no clean bill."""
    made = bench(honest_and_malicious({"c08"}), privacy=3)
    present = [c for c in grouping.clients if c != "c08"]
    result = screened(made.federation, grouping, present=present, on_untested="keep")
    assert result.exclusion.excluded == ()
    assert result.exclusion.verdicts[8].verdict == "untested"
    assert all(not (set(v.groups) & {0, 4, 6, 7}) or v.client != "c08" for v in result.exclusion.verdicts)


def test_settings_are_checked_before_a_sum_is_opened(bench: Make) -> None:
    """Case 23: an unknown name is never replaced by another."""
    for wrong, message in (
        ({"after_test": "same_round"}, "one of next-round, negative-groups"),
        ({"strategy": "bp"}, "one of auto, count, delta, bayes, map"),
        ({"on_untested": "maybe"}, "exclude-silent"),
        ({"beta": 2.0}, "beta = 2.0"),
    ):
        with pytest.raises(SpecError, match=message):
            DecodeSettings(**wrong)
    with pytest.raises(SpecError, match=r"needs screen\.source_label"):
        ScreenSettings(kind="clusters", utility="recall")
    made = bench({"a": update_of(1), "b": update_of(2)})
    with pytest.raises(SpecError, match="'stranger' is not registered"):
        training_round(made.federation, START, round=1, members=["a", "b", "stranger"])


def test_the_malicious_client_is_excluded_and_the_model_comes_from_negative_groups(
    bench: Make, grouping: Grouping
) -> None:
    made = bench(honest_and_malicious({"c05"}), privacy=4)
    result = screened(made.federation, grouping)
    assert result.exclusion.excluded == ("c05",)
    clean = [i for i in range(8) if 5 not in grouping.design.members(i)]
    assert [i for i, t in enumerate(outcomes_of(result).values.tolist()) if t == 0] == clean
    np.testing.assert_allclose(result.result.parameters["bias"], 1.0, atol=0.01)
    assert result.result.secure_sums == 8
    assert len(result.result.records) == 8  # nothing but the groups was asked for
    account = made.federation.ledger.account()
    assert (account.strict, account.cautious) == (4, 4)


def test_each_client_trains_once_however_many_groups_it_sits_in(bench: Make, grouping: Grouping) -> None:
    made = bench(honest_and_malicious({"c05"}), privacy=3)
    screened(made.federation, grouping, after_test="same-round", allow_below_promise=True)
    assert {client.calls for client in made.clients.values()} == {1}


@pytest.mark.parametrize("stage", ["keys", "shares", "masked"])
def test_a_leaving_client_turns_its_groups_into_erasures_at_four_and_is_recovered_from_at_three(
    bench: Make, grouping: Grouping, stage: str
) -> None:
    """Case 12: client 3 sits in groups 0, 2 and 3."""
    at_four = screened(bench(honest_and_malicious({"c09"}), silent={"c03": stage}, privacy=4).federation, grouping)
    assert [i for i, t in enumerate(str(outcomes_of(at_four))) if t == "?"] == [0, 2, 3]
    refused = [r for r in at_four.result.records if r.status != "open"]
    assert [r.purpose for r in refused] == ["test-group-0", "test-group-2", "test-group-3"]
    assert all("the promise is 4" in r.reason for r in refused)
    assert all("c03" in r.dropped for r in refused)

    at_three = screened(bench(honest_and_malicious({"c09"}), silent={"c03": stage}, privacy=3).federation, grouping)
    assert "?" not in str(outcomes_of(at_three))
    assert [len(r.members) for r in at_three.result.records] == [3, 4, 3, 3, 4, 4, 4, 4]
    assert at_three.exclusion.excluded == ("c03", "c09")  # who fell silent in the test is left out
    verdict = at_three.exclusion.verdicts[3]
    assert verdict.verdict == "untested"
    assert "c03 has left" in verdict.reason
    assert verdict.groups == ()  # it is in none of the sums that were opened


def test_a_client_that_leaves_at_the_unmask_is_in_the_sum_already(bench: Make, grouping: Grouping) -> None:
    result = screened(bench(honest_and_malicious({"c09"}), silent={"c03": "unmask"}, privacy=4).federation, grouping)
    assert all(r.status == "open" and len(r.members) == 4 for r in result.result.records)


def test_a_client_with_nan_is_refused_by_the_name_of_its_tensor_and_the_rest_is_tested(
    bench: Make, grouping: Grouping
) -> None:
    """Cases 3 and 20."""
    updates = honest_and_malicious({"c09"})
    updates["c03"]["weight"][1, 2] = np.nan
    result = screened(bench(updates, privacy=4).federation, grouping)
    assert [i for i, t in enumerate(str(outcomes_of(result))) if t == "?"] == [0, 2, 3]
    reasons = [r.dropped["c03"] for r in result.result.records if "c03" in r.dropped]
    assert reasons
    assert all("'weight'" in reason and "finite" in reason for reason in reasons)


def test_a_client_with_another_shape_is_refused_by_name_and_the_round_goes_on(bench: Make) -> None:
    """Case 29: (10, 785) where (10, 784) is agreed."""
    start: Parameters = {"weight": np.zeros((10, 784), dtype=np.float32)}
    updates = {f"c{j}": {"weight": np.full((10, 784), 0.5)} for j in range(5)}
    made = bench(updates, privacy=4)
    made.clients["c4"].train = lambda parameters, *, round: _model(np.zeros((10, 785)))
    result = training_round(made.federation, start, round=1, members=list(updates))
    (record,) = result.records
    assert record.members == ("c0", "c1", "c2", "c3")
    assert "client c4: tensor 'weight' has shape (10, 785), agreed is (10, 784)" in record.dropped["c4"]
    np.testing.assert_allclose(result.parameters["weight"], 0.5, atol=1e-6)


def _model(weight: Any) -> Any:
    from fedgt.engine import TrainedModel

    return TrainedModel(parameters={"weight": weight}, samples=1)


def test_an_absent_client_is_in_no_sum(bench: Make, grouping: Grouping) -> None:
    """Case 36."""
    present = [c for c in grouping.clients if c != "c02"]
    made = bench(honest_and_malicious({"c09"}), privacy=3)
    result = screened(made.federation, grouping, present=present)
    assert all("c02" not in record.members for record in result.result.records)
    assert made.clients["c02"].calls == 0


def test_the_same_round_sum_that_would_expose_client_7_is_refused_and_replaced(bench: Make, grouping: Grouping) -> None:
    """Case 39: 15x8 with {2, 12} flagged."""
    made = bench(honest_and_malicious({"c02", "c12"}), privacy=3)
    result = screened(made.federation, grouping, strategy="bayes", after_test="same-round")
    assert result.exclusion.excluded == ("c02", "c12")
    last = result.result.records[-1]
    assert (last.purpose, last.status) == ("same-round", "refused")
    assert "mixes only 1 client (c07)" in last.reason
    np.testing.assert_allclose(result.result.parameters["bias"], 1.0, atol=0.01)  # from the negative groups
    assert made.federation.ledger.account().strict == 4


def test_the_same_round_sum_below_the_promise_opens_only_by_name(bench: Make, grouping: Grouping) -> None:
    made = bench(honest_and_malicious({"c02", "c12"}), privacy=4)
    result = screened(made.federation, grouping, strategy="bayes", after_test="same-round", allow_below_promise=True)
    assert result.result.records[-1].status == "open"
    account = made.federation.ledger.account()
    assert account.overridden
    assert account.strict == 1


def test_a_dead_model_says_that_the_utility_carries_no_information_and_flags_nobody(
    bench: Make, grouping: Grouping
) -> None:
    """Case 34: all clients return zeros."""
    zeros = {name: {"weight": np.zeros((2, 3)), "bias": np.zeros(2)} for name in grouping.clients}
    result = screened(bench(zeros, privacy=4).federation, grouping)
    assert result.exclusion.excluded == ()
    assert "the utility carries no information" in result.screen.reason


def test_vanilla_federated_learning_needs_an_explicit_privacy_of_one(bench: Make) -> None:
    from fedgt.design import identity

    alone = Grouping(design=identity(4), clients=tuple("abcd"))
    updates = {n: update_of(-1.0 if n == "c" else 1.0) for n in "abcd"}
    open_ = screened(bench(updates, privacy=1).federation, alone)
    assert open_.exclusion.excluded == ("c",)
    assert all(len(r.members) == 1 and r.status == "open" for r in open_.result.records)
    closed = screened(bench(updates, privacy=2).federation, alone)
    assert all(r.status != "open" for r in closed.result.records)


def test_one_group_of_all_is_full_secure_aggregation_and_names_nobody(bench: Make) -> None:
    from fedgt.design import single_group

    together = Grouping(design=single_group(4), clients=tuple("abcd"))
    result = screened(bench({n: update_of(1) for n in "abcd"}, privacy=4).federation, together)
    assert result.screen.status == "too-few-groups"
    assert result.exclusion.excluded == ()


def test_an_unknown_layer_lists_the_tensors_of_the_model(bench: Make, grouping: Grouping) -> None:
    made = bench(honest_and_malicious(set()), privacy=4)
    with pytest.raises(SpecError, match="'fc' is no tensor of the model; it has weight, bias"):
        screening_round(
            made.federation,
            START,
            round=1,
            grouping=grouping,
            present=grouping.clients,
            validation=VALIDATION,
            screen=ScreenSettings(layer="fc"),
            decoding=DecodeSettings(),
        )


@pytest.mark.parametrize("shift", [*slow(0.0), 5.0])
def test_rfa_of_scalars_is_the_median_and_not_the_mean(bench: Make, shift: float) -> None:
    """0, 0, 0, 10, 20 has the mean 6 and the geometric median 0; shifted, the start is none of the points."""
    start = {"w": np.zeros(1)}
    values = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 10.0, "e": 20.0}
    made = bench({n: {"w": np.array([v + shift])} for n, v in values.items()})
    federation = Federation(
        run="rfa",
        transport=made.federation.transport,
        ledger=made.federation.ledger,
        samples=made.federation.samples,
        sums=SumSettings(clip=64.0),
    )
    result = rfa_round(federation, start, round=1, members=list(values), rfa=RfaSettings(iterations=40))
    assert result.secure_sums == 40
    assert float(result.parameters["w"][0]) == pytest.approx(shift, abs=1e-3)


def test_one_weiszfeld_step_from_zero_equals_the_formula(bench: Make) -> None:
    start = {"w": np.zeros(2)}
    points = {"a": np.array([1.0, 0.0]), "b": np.array([0.0, 2.0]), "c": np.array([-3.0, 4.0])}
    made = bench({n: {"w": v} for n, v in points.items()}, samples={"a": 1, "b": 2, "c": 5})
    result = rfa_round(made.federation, start, round=1, members=list(points), rfa=RfaSettings(iterations=2))
    center = np.zeros(2)
    alpha = {"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}
    for _ in range(2):
        beta = {n: alpha[n] / max(1e-6, float(np.linalg.norm(points[n] - center))) for n in points}
        center = np.sum([beta[n] * points[n] for n in points], axis=0) / sum(beta.values())
    np.testing.assert_allclose(result.parameters["w"], center, atol=1e-6)
