"""Rounds whose first sums are a training round, and which become a test when somebody asks for more (decision 0026).

The model has a tensor `marker` to which client j adds 1 at place j: after the round it shows the weight of every client.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from fedgt.engine import Failure, LocalTransport, SecureSums
from fedgt.errors import SpecError
from fedgt.experiment.unmasked import UnmaskedSums
from fedgt.federation import (
    DecodeSettings,
    Federation,
    RoundResult,
    ScreeningRound,
    ScreenSettings,
    screening_round,
    staged_round,
)
from fedgt.grouping import Grouping
from fedgt.planning import nested_groups
from fedgt.types import FloatArray, Parameters
from prototype_lab import NAMES, START, VALIDATION, updates

Make = Callable[..., Any]

NESTED = nested_groups(15, 4, groups=12)
GROUPING = Grouping(design=NESTED.plain, clients=NAMES)
TEST = partial(screening_round, validation=VALIDATION, screen=ScreenSettings(), decoding=DecodeSettings())


class Leaving:
    """A `StreamingTransport` over which one client says nothing any more from a message on."""

    def __init__(self, transport: LocalTransport, client: str, message: str) -> None:
        self.transport, self.client, self.message, self.left = transport, client, message, False

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        return dict(self.replies(stage, messages, timeout))

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        self.left |= stage == self.message
        for client, reply in self.transport.replies(stage, messages, timeout):
            gone = self.left and client == self.client
            yield client, Failure(client=client, reason="it has left") if gone else reply


def held(
    federation: Federation, *, go_on: Callable[[SecureSums], bool], present: tuple[str, ...] = NAMES, **changes: Any
) -> RoundResult | ScreeningRound:
    options: dict[str, Any] = {"grouping": GROUPING, "stages": NESTED.stages, "screening": TEST} | changes
    return staged_round(federation, START, round=1, present=present, go_on=go_on, **options)


def in_full(federation: Federation, **changes: Any) -> ScreeningRound:
    result = held(federation, go_on=lambda opened: True, **changes)
    assert isinstance(result, ScreeningRound)
    return result


def shares(parameters: Parameters) -> FloatArray:
    return np.asarray(parameters["marker"], dtype=np.float64)


def test_the_first_stage_alone_is_a_training_round(bench: Make) -> None:
    made, seen = bench(updates({"c02"}), privacy=4), list[SecureSums]()

    def no(opened: SecureSums) -> bool:
        seen.append(opened)
        return False

    result = held(made.federation, go_on=no)
    assert isinstance(result, RoundResult)
    assert (result.secure_sums, len(result.records), len(seen[0].sums)) == (3, 3, 3)
    np.testing.assert_allclose(shares(result.parameters), 1 / 15, atol=1e-6)
    account = made.federation.ledger.account()
    assert account.strict == 5


def test_all_stages_are_the_test_that_opens_all_rows_at_once(bench: Make) -> None:
    """To the last bit: the sums, the evidence, the verdicts and the model."""
    staged = in_full(bench(updates({"c02", "c07", "c11"}), privacy=4).federation)
    federation = bench(updates({"c02", "c07", "c11"}), privacy=4).federation
    at_once = TEST(federation, START, round=1, grouping=GROUPING, present=NAMES)
    assert staged.exclusion == at_once.exclusion
    assert staged.exclusion.excluded == ("c02", "c07", "c11")
    assert np.array_equal(staged.measured.finding.posterior, at_once.measured.finding.posterior)
    for name in START:
        assert np.array_equal(staged.result.parameters[name], at_once.result.parameters[name])
    assert staged.result.records == at_once.result.records
    assert federation.ledger.account().strict == 4


def test_nobody_trains_twice(bench: Make) -> None:
    made = bench(updates(set()), privacy=4)
    in_full(made.federation)
    assert {client.calls for client in made.clients.values()} == {1}


def test_sums_without_masks_say_the_same(bench: Make) -> None:
    made = bench(updates({"c02", "c07", "c11"}), privacy=4)
    plain = replace(bench(updates(set()), privacy=4).federation, take_sums=UnmaskedSums(clients=made.clients))
    staged = in_full(made.federation)
    for name in START:
        assert np.array_equal(in_full(plain).result.parameters[name], staged.result.parameters[name])
    first = held(plain, go_on=lambda opened: False)
    assert isinstance(first, RoundResult)
    assert first.secure_sums == 3


def test_three_stages_of_which_two_are_opened(bench: Make) -> None:
    asked: list[int] = []

    def once(opened: SecureSums) -> bool:
        asked.append(len(opened.sums))
        return len(asked) == 1

    result = held(bench(updates({"c02"}), privacy=4).federation, go_on=once, stages=(3, 5, 4))
    assert isinstance(result, ScreeningRound)
    assert asked == [3, 8]
    assert result.grouping.design.groups == len(result.result.records) == 8


def test_who_leaves_between_the_stages_is_silent_and_its_first_sum_is_in_no_model(bench: Make) -> None:
    """The honest members of that sum are tested in the others. The design has a row to spare for who is missing."""
    made = bench(updates({"c02"}), privacy=3)
    gone = replace(made.federation, transport=Leaving(made.federation.transport, "c00", "further"))
    result = in_full(gone)
    statuses = {record.purpose: record.status for record in result.result.records}
    first = next(i for i in range(3) if GROUPING.design.matrix[i, 0])
    assert statuses[f"test-group-{first}"] == "faulty"
    assert any("struck: c00" in warning for warning in result.result.warnings)
    assert shares(result.result.parameters)[0] == pytest.approx(0.0, abs=1e-6)
    assert "c00" in result.exclusion.excluded, "falling silent in the test must not be a way around it"
    assert result.missing == (), "and nobody is said to be behind what is missing"
    assert result.result.silent["c00"] == "further"
    assert len(result.opened_rows) == 12, "the server has seen the struck sum"
    account = gone.ledger.account()
    assert account.strict is not None
    assert account.strict >= 3


def test_rows_that_an_absence_makes_too_revealing_are_left_out_of_the_plan(bench: Make) -> None:
    """At the bound the design has no slack: without one client some rows would break the promise, and are not planned."""
    made = bench(updates(set()), privacy=4)
    present = NAMES[1:]
    result = in_full(made.federation, present=present)
    refused = [record for record in result.result.records if record.status == "refused"]
    assert refused
    assert all(int(record.purpose.rsplit("-", 1)[1]) >= 3 for record in refused)
    assert all("the promise is 4" in record.reason for record in refused)
    strict = made.federation.ledger.account().strict
    assert strict is not None
    assert strict >= 4


def test_rows_that_a_loss_between_the_stages_makes_too_revealing_are_refused(bench: Make) -> None:
    made = bench(updates(set()), privacy=4)
    gone = replace(made.federation, transport=Leaving(made.federation.transport, "c00", "further"))
    result = in_full(gone)
    assert "refused" in {record.status for record in result.result.records}
    strict = gone.ledger.account().strict
    assert strict is not None
    assert strict >= 4


def test_stages_that_do_not_fit_the_groups_are_refused_by_name(bench: Make) -> None:
    federation = bench(updates(set()), privacy=4).federation
    for stages in ((12,), (3, 8), (0, 12), ()):
        with pytest.raises(SpecError, match="add up to 12"):
            held(federation, go_on=lambda opened: True, stages=stages)
    with pytest.raises(SpecError, match="in a later stage only"):
        held(federation, go_on=lambda opened: True, stages=(1, 11))
