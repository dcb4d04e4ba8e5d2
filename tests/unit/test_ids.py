"""No two names that people take for the same stand side by side, whoever reads them."""

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.design import from_matrix
from fedgt.engine import ClientEndpoint, PrekeyStore
from fedgt.engine.roster import Roster
from fedgt.errors import FedGTError, SpecError
from fedgt.grouping import Grouping
from fedgt.ids import folded, is_id, require_distinct_ids, require_id
from fedgt.planning.plan_file import Plan
from fedgt.privacy import Ledger
from fedgt.secagg import (
    ClientSession,
    FixedPoint,
    Identity,
    Registry,
    RoundPlan,
    RunTerms,
    TensorSpec,
    add_to_registry,
    read_private_key,
    read_registry,
    write_private_key,
)

COMPOSED, DECOMPOSED = "Süd", unicodedata.normalize("NFD", "Süd")
UNUSABLE = {
    "decomposed": DECOMPOSED,
    "space before": " north",
    "space after": "north ",
    "two spaces": "north  west",
    "no-break space": "north\u00a0west",
    "zero width": "no\u200brth",
    "soft hyphen": "no\u00adrth",
    "direction": "\u202ehtron",
    "filler": "north\u3164",
    "variant": "north\ufe0f",
    "combining joiner": "no\u034frth",
    "line break": "north\nsouth",
    "empty": "",
    "too long": "n" * 201,
}
LOOKALIKES = [
    ("Süd", "süd"),
    ("north", "North"),
    ("north", "\uff4e\uff4f\uff52\uff54\uff48"),
    ("\ufb01rst", "first"),
    ("straße", "STRASSE"),
    ("site", "\u017fite"),
    ("site²", "site2"),
]


@pytest.mark.parametrize("name", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_name_that_hides_something_is_refused_and_said_in_plain_letters(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        require_id(name, "client id")
    assert str(caught.value).isprintable()
    assert not is_id(name)


@pytest.mark.parametrize(
    "name", ["north", COMPOSED, "Krankenhaus Süd 3", "東京", "مستشفى", "hospital-7_b.2", "n" * 200]
)
def test_usual_names_in_any_script_can_be_ids(name: str) -> None:
    assert require_id(name) == name


@pytest.mark.parametrize(("one", "other"), LOOKALIKES)
def test_two_names_that_look_alike_do_not_stand_side_by_side(one: str, other: str) -> None:
    require_distinct_ids([one])
    require_distinct_ids([other])
    with pytest.raises(SpecError, match="look alike"):
        require_distinct_ids([one, other])


@given(st.text(max_size=12))
def test_folding_is_idempotent_and_blind_to_case_and_normal_form(name: str) -> None:
    assert folded(folded(name)) == folded(name)
    assert folded(unicodedata.normalize("NFD", name)) == folded(name) == folded(unicodedata.normalize("NFC", name))
    assert folded(name.casefold()) == folded(name)


MATRIX = [[1, 1, 0], [0, 1, 1]]


def plan(*names: str) -> RoundPlan:
    return RoundPlan(
        run="run",
        round=1,
        purpose="test",
        groups=((*names[:2],), (names[0], "zz")),
        thresholds=(2, 2),
        weights=dict.fromkeys([*names, "zz"], 1),
        encoding=FixedPoint(clip=1.0, fraction_bits=8, ring_bits=32),
        tensors=(TensorSpec(name="w", shape=(1,)),),
    )


def file_plan(*names: str) -> object:
    return Plan.model_validate(
        {
            "evidence": "binary",
            "design": {"name": "d", "source": "s", "matrix": ((1, 1, 0), (0, 1, 1))},
            "privacy": {"promised": 1, "r": 1, "exact": True, "combination": {}, "clients": (0,)},
            "strategy": {"largest": 1},
            "members": (*names, "zz"),
        }
    )


READERS: dict[str, Callable[[str, str], object]] = {
    "registry": lambda one, other: Registry(
        server=Identity.generate("s").public,
        clients={name: Identity.generate("x").public for name in (one, other)},
    ),
    "plan of a round": plan,
    "plan file": file_plan,
    "grouping": lambda one, other: Grouping(
        design=from_matrix(MATRIX, name="d", source="s"), clients=(one, other, "zz")
    ),
    "ledger": lambda one, other: Ledger(clients=(one, other), promised=1),
    "terms": lambda one, other: RunTerms(
        run="run", weights={one: 1, other: 1}, clip=1.0, fraction_bits=8, tensors=(TensorSpec(name="w", shape=(1,)),)
    ),
    "roster": lambda one, other: Roster(
        (one, other), list, lambda *_: iter(()), credentials=None, prekeys=PrekeyStore()
    ),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_reader_of_names_refuses_what_hides_and_what_looks_alike(read: Callable[[str, str], object]) -> None:
    read("Süd", "Nord")
    for one, other in (("Süd", DECOMPOSED), ("Süd", "Süd "), *LOOKALIKES, ("north", "south\u200b")):
        with pytest.raises((FedGTError, ValueError), match=r"look alike|normal form|space|printable"):
            read(one, other)


def test_a_participant_cannot_call_itself_what_no_plan_may_name(tmp_path: Path) -> None:
    write_private_key(tmp_path / "key.pem", Identity.generate("a"))
    for name in (DECOMPOSED, "a ", "a\u3164"):
        for make in (
            Identity.generate,
            ClientSession,
            lambda name: ClientEndpoint(name, None),  # type: ignore[arg-type]
            lambda name: read_private_key(tmp_path / "key.pem", name),
        ):
            with pytest.raises(SpecError):
                make(name)


def test_a_registry_file_with_two_spellings_of_one_name_is_refused(tmp_path: Path) -> None:
    """Süd composed and decomposed, and with a trailing space: three clients for whoever counts them."""
    path = tmp_path / "consortium.toml"
    add_to_registry(path, Identity.generate("server"), server=True)
    add_to_registry(path, Identity.generate(COMPOSED), server=False)
    written = path.read_text(encoding="utf-8")
    for other in (DECOMPOSED, COMPOSED + " ", COMPOSED.upper()):
        path.write_text(f'{written}"{other}" = "{Identity.generate("x").public.hex()}"\n', encoding="utf-8")
        with pytest.raises(SpecError, match=r"normal form|space|look alike"):
            read_registry(path)
    path.write_text(written, encoding="utf-8")
    with pytest.raises(SpecError, match="look alike"):
        add_to_registry(path, Identity.generate(COMPOSED.upper()), server=False)
