"""Federations of more clients than those of which every minority is considered: more attackers than eight are found."""

from pathlib import Path

import pytest

from fedgt.experiment import make_spec, run

pytestmark = [pytest.mark.slow, pytest.mark.needs_mnist]


@pytest.mark.parametrize(
    ("clients", "seed", "said"),
    [
        pytest.param(25, 741, "left out: client", id="25"),
        pytest.param(25, 740, "more than margins can tell", id="25, and classes look unevenly owned"),
        pytest.param(50, 731, "left out: client", id="50, in nineteen contrasts"),
    ],
)
def test_ten_attackers_are_named_and_nobody_else(mnist_dir: Path, clients: int, seed: int, said: str) -> None:
    """Of more than 21 clients sets of up to eight are considered at first. Ten attackers were said to be nobody."""
    attack = {"attack.malicious": 10, "attack.source": 1, "attack.target": 7}
    spec = make_spec(
        {"privacy": 6, "data": {"name": "mnist"}, "federation": {"clients": clients, "rounds": 1}},
        {"seed": seed, **attack},
    )
    result = run(spec)
    assert {one.id for one in result.clients if one.excluded} == {
        one.id for one in result.clients if one.truth == "malicious"
    }
    assert result.test is not None
    assert said in f"{result.test.screen_reason}; {result.test.reason}"


def test_attackers_who_are_too_many_to_be_scored_are_not_cleared(mnist_dir: Path) -> None:
    """Margins consider four of 50 clients. Twenty attackers were missed, and 18 of them read as cleared."""
    attack = {"attack.malicious": 20, "attack.source": 1, "attack.target": 7}
    spec = make_spec(
        {"privacy": 6, "data": {"name": "mnist"}, "federation": {"clients": 50, "rounds": 1}}, {"seed": 770, **attack}
    )
    result = run(spec)
    assert {one.verdict for one in result.clients if one.truth == "malicious"} == {"undecided"}
    assert not any(one.excluded for one in result.clients)
    assert result.test is not None
    assert "more than 4 malicious clients could not be looked for" in result.test.reason
