"""What a run says on the terminal about clients and tests, in the words of the report."""

import pytest

from fedgt.experiment import make_spec, run
from fedgt.record import RunResult
from fedgt.record.result import PowerRow
from fedgt.record.verdict_words import MEANINGS

# typer still asks click for names that click is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")

SMALL = {"privacy": 4, "federation": {"rounds": 1}, "attack": {"malicious": 0}}


def result() -> RunResult:
    return run(make_spec(SMALL))


def test_the_words_that_stand_in_the_table_are_explained_and_no_others() -> None:
    from fedgt.cli.tables import meanings

    clients = result().clients
    said = {client.verdict for client in clients}
    assert meanings(clients) == [f"{word}: {MEANINGS[word]}" for word in MEANINGS if word in said]


def test_what_could_be_missed_is_that_of_the_strongest_test() -> None:
    from fedgt.cli.tables import power_line

    test = result().test
    assert test is not None
    weak = test.model_copy(update={"round": 7, "power": (PowerRow(attackers=1, shift=9.0),)})
    strong = test.model_copy(update={"round": 3, "power": (PowerRow(attackers=1, shift=2.0),)})
    assert "below 2 " in power_line((weak, strong))
    assert "round 3" in power_line((weak, strong))
    assert "not known" in power_line((test.model_copy(update={"power": ()}),))
