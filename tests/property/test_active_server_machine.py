"""No schedule of an active server reveals more than was promised; and the machine finds the faults that it is for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import fedgt.engine.endpoint
import fedgt.secagg.account
import fedgt.secagg.agreement
import fedgt.secagg.signatory
from active_server import ActiveServer
from fedgt.errors import PolicyError
from fedgt.secagg import ClientPolicy
from fedgt.secagg.account import smallest_support
from fedgt.secagg.agreement import Row
from fedgt.secagg.agreement_log import AgreementLog
from lying_server import LyingServer, least_mixed, model
from slow_cases import tries


def profile(examples: int, *, phases: Sequence[Phase] = (Phase.generate,), steps: int = 12) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        database=None,
    )


def test_no_schedule_of_an_active_server_reveals_fewer_clients_than_promised() -> None:
    run_state_machine_as_test(ActiveServer, settings=profile(10))


@pytest.mark.slow
def test_no_schedule_of_an_active_server_reveals_fewer_clients_than_promised_in_many_tries() -> None:
    run_state_machine_as_test(ActiveServer, settings=profile(tries(500), steps=20))


# The machine finds the faults that it is for ----------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    """A check that is not made."""


def without_promise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fedgt.secagg.signatory, "require_promise", nothing)


def without_promise_when_signing(patch: pytest.MonkeyPatch) -> None:
    """Only what is planned is looked at, never what is really to be opened."""
    kept = fedgt.secagg.signatory.Signatory.require_promise

    def planned_only(self: Any, plan: Any, rows: Sequence[Row]) -> None:
        if tuple(rows) == fedgt.secagg.agreement.planned_rows(plan):
            kept(self, plan, rows)

    patch.setattr(fedgt.secagg.signatory.Signatory, "require_promise", planned_only)


def without_account(patch: pytest.MonkeyPatch) -> None:
    """What was signed before does not count."""
    patch.setattr(AgreementLog, "account", lambda self: {})


def without_the_stage_before(patch: pytest.MonkeyPatch) -> None:
    """What was signed in an earlier stage of the same plan does not count."""

    def account(self: Any) -> dict[str, list[Row]]:
        self.refresh()
        rows: dict[str, list[Row]] = {}
        for link in self.links:
            if link.plan != self.links[-1].plan:
                rows.setdefault(link.model, []).extend(link.rows)
        return rows

    patch.setattr(AgreementLog, "account", account)


def quorum_of_a_few(patch: pytest.MonkeyPatch) -> None:
    """Counted among those who are left in a group."""
    patch.setattr(fedgt.secagg.signatory, "quorum", lambda clients, *, colluders: 3)


def without_inputs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fedgt.engine.endpoint, "require_inputs", nothing)


def near_models_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fedgt.engine.endpoint, "akin_models", lambda *_, **__: ())
    patch.setattr(fedgt.engine.endpoint, "akin_answers", lambda *_, **__: ())


def weiszfeld_in_general_position(patch: pytest.MonkeyPatch) -> None:
    """Each Weiszfeld sum as a row that has nothing to do with any other, and only the updates looked at."""

    def rows(task: str, plan: str, weights: Mapping[str, int], groups: Any) -> tuple[Row, ...]:
        rng = np.random.default_rng([*bytes.fromhex(plan)])
        return tuple(
            {name: float(weights[name] * a if task == "mean" else rng.integers(1, 2**20)) for name, a in group.items()}
            for group in groups
            if group
        )

    def updates_only(rows: Sequence[Row], promised: int, about: str) -> None:
        found = smallest_support(rows, enough=promised)
        if found is not None and found[0] < promised:
            raise PolicyError(about)

    patch.setattr(fedgt.secagg.agreement, "rows_of", rows)
    patch.setattr(fedgt.secagg.account, "_require", updates_only)


MUTANTS = (
    without_promise,
    without_promise_when_signing,
    without_account,
    without_the_stage_before,
    without_inputs,
    near_models_apart,
    weiszfeld_in_general_position,
)


@contextmanager
def weakened(mutate: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTANTS)
def test_the_machine_finds_what_a_missing_check_would_reveal(mutate: Callable[[pytest.MonkeyPatch], None]) -> None:
    with weakened(mutate), pytest.raises(AssertionError, match="honest clients, promised"):
        run_state_machine_as_test(ActiveServer, settings=profile(1000, steps=20))


@pytest.mark.parametrize("few", [False, True])
def test_two_halves_of_a_registry_open_nothing_that_a_quorum_of_a_few_would(few: bool) -> None:
    """Five clients sign the list of one group, five others that of the other: the sums differ by six, seven are promised."""
    both, left, right = "abcd", "efg", "hij"
    names = (*both, *left, *right, "x", "y")
    server = LyingServer(names, ClientPolicy(privacy=7, colluders=0))
    with weakened(quorum_of_a_few) if few else nullcontext():
        attempt = server.begin(server.plan((*both, *left, "x"), (*both, *right, "y")), model(1))
        server.share(attempt)
        server.mask(attempt)
        for index, (own, out, by) in enumerate(((left, "x", "ab"), (right, "y", "cd"))):
            link = server.link(attempt, {index: ((*both, *own), (out,))}, number=1)
            server.sign(attempt, link, (*own, *by))
            server.unmask(attempt, link)
    assert least_mixed(server.revealed()) == (6 if few else None)
