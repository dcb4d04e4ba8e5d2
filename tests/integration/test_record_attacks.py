"""What an active server tries with the clients' records: two processes, old states, broken journals, moved signatures.

`tests/support/lying_server.py` plays the server.
"""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedgt.engine.journal
from fedgt.engine.journal import RoundJournal
from fedgt.engine.nearness import answered
from fedgt.errors import FedGTError, ProtocolError, SpecError
from fedgt.secagg import ClientPolicy, Identity
from fedgt.secagg.agreement import Link, signatures_from_json, valid_signatures
from lying_server import Attempt, LyingServer, least_mixed, model
from secagg_lab import Consortium
from slow_cases import slow

NAMES = tuple(f"c{number}" for number in range(9))
PROMISE = 4
COLLUDERS = pytest.mark.parametrize("colluders", [*slow(0), 1, *slow(2)])


def lying(colluders: int, folder: Path | None, **options: Any) -> LyingServer:
    bad = NAMES[len(NAMES) - colluders :]
    policy = ClientPolicy(privacy=PROMISE, colluders=colluders)
    return LyingServer(NAMES, policy, bad=bad, folder=folder, **options)


def require_kept(server: LyingServer) -> None:
    mixed = least_mixed(server.revealed())
    assert mixed is None or mixed >= PROMISE - len(server.bad), f"{mixed} honest clients are mixed"


# Two processes ----------------------------------------------------------------------------------------------------------


@COLLUDERS
@pytest.mark.parametrize("later_first", [False, True])
def test_nearly_equal_models_of_two_processes_count_as_one_whichever_is_signed_first(
    colluders: int, later_first: bool, tmp_path: Path
) -> None:
    """Both runs are open at once: neither is signed when the other one is looked at."""
    server = lying(colluders, tmp_path)
    one = server.play(server.plan(NAMES, run="one"), model(1))
    two = server.play(server.plan(NAMES, run="two"), model(1, 1e-9), process=1)
    order = [(two, NAMES[1:]), (one, NAMES)] if later_first else [(one, NAMES), (two, NAMES[1:])]
    for attempt, alive in order:
        server.open(attempt, {0: (alive, set(NAMES) - set(alive))})
    assert server.revealed()
    require_kept(server)


@COLLUDERS
def test_two_processes_that_have_loaded_the_journal_do_not_miss_what_the_other_answers(
    colluders: int, tmp_path: Path
) -> None:
    """The second process has read the record of models before the first one adds to it."""
    server = lying(colluders, tmp_path)
    for name in server.honest:
        server.endpoint(name, 1)
    assert server.open(server.play(server.plan(NAMES, run="one"), model(1)))
    two = server.play(server.plan(NAMES[1:], run="two"), model(1, 1e-9), process=1)
    assert not server.open(two)
    assert all("mix only c0" in server.refusals[name] for name in server.honest[1:])


@COLLUDERS
def test_a_plan_that_is_open_while_another_is_signed_is_looked_at_again(colluders: int, tmp_path: Path) -> None:
    """Both plans are fine when they come: the second one of the same model is signed under the first one's nose."""
    server = lying(colluders, tmp_path)
    one = server.play(server.plan(NAMES, run="one"))
    two = server.play(server.plan(NAMES, run="two"), process=1)
    assert server.open(two)
    link = server.link(one, {0: (NAMES[1:], NAMES[:1])})
    assert set(server.sign(one, link)) == set(server.bad)
    require_kept(server)


def test_two_processes_that_start_at_once_draw_one_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds would make the record of models unreadable, or incomparable."""
    path = tmp_path / "journal"
    begin = RoundJournal._begin_models
    other: list[RoundJournal] = []

    def overtaken(self: RoundJournal, models: Path) -> None:
        if not other:
            monkeypatch.setattr(RoundJournal, "_begin_models", begin)
            other.append(RoundJournal(path))
        begin(self, models)

    monkeypatch.setattr(RoundJournal, "_begin_models", overtaken)
    late = RoundJournal(path)
    assert late.seed == other[0].seed == RoundJournal(path).seed


def test_a_process_that_starts_does_not_cut_off_what_another_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for a line that a crash has cut off, while a whole line is added."""
    path = tmp_path / "journal"
    journal = RoundJournal(path)
    made = answered(model(1), model(2), model="0" * 64, seed=journal.seed, clip=8.0, fraction_bits=16)
    read = fedgt.engine.journal._content
    models = path.with_name("journal.models")

    def slow(file: Path) -> bytes:
        content = read(file)
        if file == models:
            monkeypatch.setattr(fedgt.engine.journal, "_content", read)
            journal.answer(made)
        return content

    monkeypatch.setattr(fedgt.engine.journal, "_content", slow)
    assert len(RoundJournal(path).models) == 1


# Suspended states -------------------------------------------------------------------------------------------------------


@COLLUDERS
@pytest.mark.parametrize("stage", ["masked", "agree", "unmask"])
def test_a_state_that_was_suspended_before_any_stage_is_not_resumed_twice(
    stage: str, colluders: int, tmp_path: Path
) -> None:
    """A twin of each client would sign, or release, the other list."""
    server = lying(colluders, tmp_path)
    attempt = server.begin(server.plan(NAMES), model(1))
    server.share(attempt)
    if stage != "masked":
        server.mask(attempt)
    link = server.link(attempt, {0: (NAMES, ())}) if stage == "unmask" else None
    if link is not None:
        server.sign(attempt, link)
    states = {name: server.endpoint(name).suspend() for name in server.honest}
    for name, state in states.items():
        server.endpoints[name, 0] = server.fresh(name)
        server.endpoints[name, 0].resume(state)
        with pytest.raises(ProtocolError, match="this state was used already"):
            server.fresh(name).resume(state)
    if stage == "masked":
        server.mask(attempt)
    assert len(server.open(attempt) if link is None else server.unmask(attempt, link)) == len(server.honest)
    require_kept(server)


@COLLUDERS
def test_a_client_that_lost_its_record_is_no_more_than_one_colluder(colluders: int, tmp_path: Path) -> None:
    """One site restores nothing after a crash; the server begins the chain again with it and its colluders."""
    server = lying(colluders, tmp_path)
    assert server.open(server.play(server.plan(NAMES)))
    lost = server.honest[0]
    del server.endpoints[lost, 0]
    for path in tmp_path.glob(f"{lost}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.head = None
    again = server.begin(server.plan(NAMES[:-1], run="again"), model(1))
    server.share(again)
    server.mask(again, missed=lambda name: b"")
    server.open(again, by=NAMES)
    require_kept(server)


# Journals that cannot be written, or were changed -----------------------------------------------------------------------


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def damaged(what: str) -> Callable[[Path], None]:
    """Of one client's files, by the name of the damage."""

    def remove(path: Path) -> None:
        for one in path.parent.glob(f"{path.name}*"):
            shutil.rmtree(one) if one.is_dir() else one.unlink()

    def cut(path: Path) -> None:
        (link,) = path.with_name(path.name + ".agreed").rglob("*.json")
        link.write_bytes(link.read_bytes()[:-20])

    def swapped(path: Path) -> None:
        (link,) = path.with_name(path.name + ".agreed").rglob("*.json")
        link.write_bytes(replace(Link.from_json(link.read_bytes()), previous="0" * 64).to_json())

    def scribbled(path: Path) -> None:
        with path.with_name(path.name + ".models").open("ab") as file:
            file.write(b"rubbish\n")

    return {"removed": remove, "cut off": cut, "changed": swapped, "scribbled on": scribbled}[what]


@COLLUDERS
@pytest.mark.parametrize("what", ["removed", "cut off", "changed", "scribbled on"])
def test_a_process_whose_journal_is_damaged_under_it_signs_nothing_wrong(
    what: str, colluders: int, tmp_path: Path
) -> None:
    """It has the record in memory, or refuses; a new process refuses, or knows nothing and is one client alone."""
    server = lying(colluders, tmp_path)
    assert server.open(server.play(server.plan(NAMES)))
    damaged(what)(tmp_path / "c1")
    server.open(server.play(server.plan(NAMES[1:], round=2)))
    assert server.refusals.keys() >= set(server.honest[1:])
    del server.endpoints["c1", 0]
    if what == "removed":
        assert server.endpoint("c1")
    else:
        with pytest.raises(SpecError):
            server.endpoint("c1")
    require_kept(server)


@COLLUDERS
@pytest.mark.parametrize("broken", ["fsync", "link", "open"])
def test_on_a_full_disk_nothing_is_answered_or_signed(
    broken: str, colluders: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of the three moments at which something must be on the disk before it leaves."""
    server = lying(colluders, tmp_path)
    first = server.play(server.plan(NAMES))
    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        if broken == "link":
            patch.setattr(os, "open", full)
        link = server.link(first, server.truth(first))
        assert set(server.sign(first, link)) == set(server.bad)
        second = server.play(server.plan(NAMES, round=2), model(2))
        assert not {NAMES[position] for _, position in second.vectors} - set(server.bad)
    assert all("No space left" in server.refusals[name] for name in server.honest)
    assert least_mixed(server.revealed()) is None


# Signatures and links that belong elsewhere -----------------------------------------------------------------------------


@COLLUDERS
def test_signatures_of_one_consortium_are_worth_nothing_in_another(colluders: int) -> None:
    """The same clients under another server: the chains begin with other digests."""
    server = lying(colluders, None)
    other = lying(
        colluders,
        None,
        people=Consortium(server=Identity.generate("server"), clients=server.people.clients),
    )
    mine, theirs = server.play(server.plan(NAMES)), other.play(other.plan(NAMES))
    link, strange = server.link(mine, {0: (NAMES, ())}), other.link(theirs, {0: (NAMES, ())})
    signatures = other.sign(theirs, strange)
    server.sign(mine, link, server.honest[:3])
    assert set(valid_signatures(link, server.registry, signatures)) == set()
    assert server.unmask(mine, link, {**signatures, **server.known[link.digest][1]}) == {}


@COLLUDERS
def test_nothing_else_that_a_client_signs_passes_for_an_agreement(colluders: int) -> None:
    """Keys, frames and headers are signed, too, over bytes that the server has a say in."""
    server = lying(colluders, None)
    heard: list[bytes] = []
    tell = server.tell
    server.tell = lambda *given: heard.append(reply := tell(*given)) or reply  # type: ignore
    attempt = server.play(server.plan(NAMES))
    link = server.link(attempt, {0: (NAMES, ())})
    for name in server.honest:
        keys = attempt.keys[0][NAMES.index(name)][-64:]
        for signature in (keys, *(reply[-64:] for reply in heard if reply)):
            assert valid_signatures(link, server.registry, {name: signature}) == {}


@COLLUDERS
def test_one_signature_under_many_names_is_one(colluders: int) -> None:
    """The key of one client signs for all; and a name that comes twice is refused."""
    server = lying(colluders, None)
    attempt = server.play(server.plan(NAMES))
    link = server.link(attempt, {0: (NAMES, ())})
    mine = server.sign(attempt, link, ["c0"])["c0"]
    assert set(valid_signatures(link, server.registry, dict.fromkeys(NAMES, mine))) == {"c0"}
    assert server.unmask(attempt, link, dict.fromkeys(NAMES, mine)) == {}
    text = f'"c0":"{mine.hex()}"'
    with pytest.raises(ProtocolError):
        signatures_from_json(f"{{{text},{text}}}".encode(), registry=server.registry)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"number":1', '"number":1.0'),
        ('"number":1', '"number":01'),
        ('"weights":{"c0":1', '"weights":{"c0":1,"c0":2'),
        ('"weights":{"c0":1', '"weights":{"c0":0'),
        ('"task":"mean"', '"task":"mean","task":"weiszfeld"'),
        ('"task":"mean"', '"extra":1,"task":"mean"'),
        ('[[0,["c0"', '[[0,["c0","c0"'),
        ('[[0,["c0"', '[[-1,["c0"'),
        ('[[0,["c0",', '[[0,["c0", '),
    ],
)
def test_an_agreement_in_any_other_spelling_is_not_signed(before: str, after: str) -> None:
    server = lying(1, None)
    attempt = server.play(server.plan(NAMES))
    link = server.link(attempt, {0: (NAMES, ())})
    text = link.to_json().decode()
    assert before in text
    parts = server.lists_of(attempt, link, "c0")
    assert server.ask(attempt, "agree", "c0", parts, text.replace(before, after, 1).encode()) is None
    assert "not a valid agreement" in server.refusals["c0"]


CHANGES: dict[str, Callable[[Attempt, Link], dict[str, Any]]] = {
    "another model": lambda attempt, link: {"model": "0" * 64},
    "no model": lambda attempt, link: {"model": ""},
    "another task": lambda attempt, link: {"task": "weiszfeld"},
    "another run": lambda attempt, link: {"run": "other"},
    "the digest of the link before for the plan": lambda attempt, link: {"plan": link.previous},
    "the digest of the plan for the link before": lambda attempt, link: {"previous": link.plan},
    "a number that leaves room": lambda attempt, link: {"number": 2},
}


@COLLUDERS
@pytest.mark.parametrize("what", CHANGES)
def test_an_agreement_that_would_be_booked_elsewhere_is_not_signed(what: str, colluders: int) -> None:
    """Were it signed, the account of this model would not have the sums."""
    server = lying(colluders, None)
    attempt = server.play(server.plan(NAMES))
    link = server.link(attempt, {0: (NAMES, ())})
    false = replace(link, **CHANGES[what](attempt, link))
    assert set(server.sign(attempt, false)) == set(server.bad)
    assert server.unmask(attempt, false) == {}


# A new registry ---------------------------------------------------------------------------------------------------------


def test_two_registries_in_one_journal_folder_share_the_account(tmp_path: Path) -> None:
    """A new registry is a new chain; the data are the same."""
    old = LyingServer(NAMES[:8], ClientPolicy(privacy=PROMISE, colluders=0), folder=tmp_path)
    assert old.open(old.play(old.plan(NAMES[:8])))
    people = Consortium(server=old.people.server, clients={**old.people.clients, NAMES[8]: Identity.generate(NAMES[8])})
    new = LyingServer(NAMES, ClientPolicy(privacy=PROMISE, colluders=0), folder=tmp_path, people=people)
    assert not new.open(new.play(new.plan(NAMES[1:8])))
    assert not new.open(new.play(new.plan(NAMES)))
    assert all("mix only c8" in new.refusals[name] for name in NAMES[:8])


@pytest.mark.xfail(
    strict=True, reason="a new registry begins a new chain: who signed nothing in the old one knows nothing"
)
def test_a_new_registry_does_not_hide_the_old_account_from_those_who_have_not_signed_it(tmp_path: Path) -> None:
    """Three of five sign the first sum; the five that know nothing of it are a quorum of the nine."""
    policy = ClientPolicy(privacy=PROMISE, colluders=0)
    five, rest = NAMES[:5], NAMES[5:]
    old = LyingServer(five, policy, folder=tmp_path)
    first = old.play(old.plan(five))
    assert set(old.open(first, by=five[:3])) == set(five[:3])
    people = Consortium(
        server=old.people.server, clients={**old.people.clients, **{name: Identity.generate(name) for name in rest}}
    )
    new = LyingServer(NAMES, policy, folder=tmp_path, people=people)
    second = new.play(new.plan(NAMES))
    new.open(second, {0: (NAMES[:8], NAMES[8:])})
    assert (least_mixed([*old.revealed(), *new.revealed()]) or PROMISE) >= PROMISE


def test_the_lying_server_itself_can_fail() -> None:
    """Clients of the same server in anonymous mode would answer; these refuse what is not signed."""
    server = lying(0, None)
    with pytest.raises(FedGTError):
        server.endpoint("c0").handle("keys", b"rubbish")
