"""What was opened is known after a restart, or nothing more is opened."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.errors import SpecError
from fedgt.privacy import Ledger

NAMES = ("a", "b", "c", "d", "e")
ALL = dict.fromkeys(NAMES, 1.0)
WITHOUT_E = dict.fromkeys(NAMES[:4], 1.0)

Asked = list[tuple[list[dict[str, float]], str, bool, bool]]

ROWS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.0, 1.0, 1.5, 100.0]), max_size=5)
ASKED = st.lists(
    st.tuples(st.lists(ROWS, max_size=3), st.sampled_from(["round-1", "round-2"]), st.booleans(), st.booleans()),
    max_size=5,
)


def ledger(promised: int = 2) -> Ledger:
    return Ledger(clients=NAMES, promised=promised)


def asked(account: Ledger, questions: Asked) -> list[tuple[str | None, ...]]:
    return [
        account.permit(rows, models=models, test=test, override=override) for rows, models, test, override in questions
    ]


def grown(questions: Asked) -> Ledger:
    account = ledger()
    asked(account, questions)
    return account


def merged(*accounts: Ledger) -> bytes:
    total = ledger()
    for one in accounts:
        total.merge(one)
    return total.to_json()


# Laws --------------------------------------------------------------------------------------------------------------


@given(ASKED, ASKED, ASKED)
def test_merging_is_a_union(one: Asked, two: Asked, three: Asked) -> None:
    a, b, c = grown(one), grown(two), grown(three)
    assert merged(a, a) == a.to_json()
    assert merged(a, ledger()) == a.to_json()
    assert merged(a, b) == merged(b, a)
    left, right = grown(one), grown(two)
    left.merge(b)
    right.merge(c)
    assert merged(left, c) == merged(a, right)


@given(before=ASKED, after=ASKED)
def test_an_account_that_was_saved_and_loaded_says_the_same_for_ever(
    tmp_path_factory: pytest.TempPathFactory, before: Asked, after: Asked
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "account"
    staying = grown(before)
    staying.save(path)
    again = Ledger.load(path)
    assert again.to_json() == staying.to_json() == path.read_bytes()
    assert asked(again, after) == asked(staying, after)
    assert again.to_json() == staying.to_json()
    assert again.account() == staying.account()


@given(before=ASKED, more=ASKED, row=ROWS, models=st.sampled_from(["round-1", "round-2"]), test=st.booleans())
def test_what_is_refused_stays_refused_whatever_is_added(
    before: Asked, more: Asked, row: dict[str, float], models: str, test: bool
) -> None:
    account = grown(before)
    (refusal,) = account.permit([row], models=models, test=test)
    if refusal is None:
        return
    account.merge(grown(more))
    assert account.permit([row], models=models, test=test) != (None,)


@given(ASKED)
def test_a_kept_account_answers_as_one_in_memory_and_each_answer_is_on_the_disk(
    tmp_path_factory: pytest.TempPathFactory, questions: Asked
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "account"
    memory = ledger()
    for question in questions:
        restarted = Ledger.kept_in(path, clients=NAMES, promised=2)
        assert asked(restarted, [question]) == asked(memory, [question])
        assert path.read_bytes() == restarted.to_json() == memory.to_json()


# Restarts ----------------------------------------------------------------------------------------------------------


def test_a_row_that_was_refused_before_a_restart_is_refused_after_it(tmp_path: Path) -> None:
    """All five, and all but e, about the same models: the difference is e's."""
    first = Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2)
    assert first.permit([ALL], models="round-1", test=False) == (None,)
    (before,) = first.permit([WITHOUT_E], models="round-1", test=False)
    (after,) = Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2, begun=True).permit(
        [WITHOUT_E], models="round-1", test=False
    )
    assert before is not None
    assert before == after
    assert ledger().permit([WITHOUT_E], models="round-1", test=False) == (None,)  # what a server that forgets would say


def test_the_file_is_its_owners_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "account"
    Ledger.kept_in(path, clients=NAMES, promised=2).permit([ALL], models="round-1", test=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["account", "account.lock"]


def test_a_run_that_has_begun_does_not_go_on_without_its_account(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is missing"):
        Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2, begun=True)
    account = Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2)
    (tmp_path / "account").unlink()
    with pytest.raises(SpecError, match="cannot be read"):
        account.permit([ALL], models="round-1", test=False)


def test_an_account_of_other_clients_or_another_promise_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "account"
    Ledger.kept_in(path, clients=NAMES, promised=2)
    for clients, promised, reason in (
        (NAMES, 1, "promised that sums mix 2 clients"),
        (NAMES, 3, "promised that sums mix 2 clients"),
        (NAMES[:4], 2, "other clients: e is in one"),
        ((*NAMES, "f"), 2, "other clients: f is in one"),
    ):
        with pytest.raises(SpecError, match=reason):
            Ledger.kept_in(path, clients=clients, promised=promised)


def changed(path: Path, change: Any) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(json.dumps(content, sort_keys=True, separators=(",", ":")).encode() + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(version=2),
        lambda content: content.update(promised=True),
        lambda content: content.update(overridden=1),
        lambda content: content.update(overridden="no"),
        lambda content: content.update(more=1),
        lambda content: content.pop("tests"),
        lambda content: content["rows"].clear(),
        lambda content: content["rows"].append([1.0] * 4),
        lambda content: content["rows"].append([-1.0] * 5),
        lambda content: content["rows"].append([1] * 5),
        lambda content: content["rows"].append(["1"] * 5),
        lambda content: content["training"].append(-1),
        lambda content: content["strict"].update({"round-9": [7]}),
        lambda content: content.update(clients=["a", "b", "c", "d", "D"]),
        lambda content: content.update(clients=5),
        lambda content: content.update(strict=[]),
    ],
)
def test_a_file_that_was_changed_opens_nothing(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "account"
    account = Ledger.kept_in(path, clients=NAMES, promised=2)
    account.permit([ALL], models="round-1", test=False)
    changed(path, change)
    with pytest.raises(SpecError, match="ledger"):
        Ledger.load(path)
    with pytest.raises(SpecError, match="ledger"):
        account.permit([WITHOUT_E], models="round-2", test=False)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\x00", b"[" * 10_000, b'{"version":1', b"null"])
def test_rubbish_is_no_account(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "account"
    path.write_bytes(content)
    with pytest.raises(SpecError, match="ledger"):
        Ledger.load(path)
    with pytest.raises(SpecError, match="ledger"):
        Ledger.kept_in(path, clients=NAMES, promised=2)


# Crashes and company -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_a_disk_that_fails_at_any_step_gives_no_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "account"
    account = Ledger.kept_in(path, clients=NAMES, promised=2)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    opened = os.open

    def no_draft(path: Path, flags: int, *mode: int) -> object:
        return full() if flags & os.O_EXCL else opened(path, flags, *mode)

    with monkeypatch.context() as broken:
        if step == "replace":
            broken.setattr(Path, "replace", full)
        else:
            broken.setattr(os, step, no_draft if step == "open" else full)
        with pytest.raises(SpecError, match="cannot be written"):
            account.permit([ALL], models="round-1", test=False)
    assert path.read_bytes() == before == account.to_json()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["account", "account.lock"]
    assert account.permit([WITHOUT_E], models="round-1", test=False) == (None,)


DIES = """
import os, signal, sys
from pathlib import Path
from fedgt.privacy import Ledger
account = Ledger.kept_in(Path(sys.argv[1]), clients="abcde", promised=2)
print(account.permit([dict.fromkeys("abcde", 1.0)], models="round-1", test=False), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_that_is_killed_as_soon_as_it_may_open_has_opened(tmp_path: Path) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path / "account")], capture_output=True, text=True, check=False
    )
    assert died.returncode == -signal.SIGKILL
    assert died.stdout.strip() == "(None,)"
    account = Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2, begun=True)
    (refusal,) = account.permit([WITHOUT_E], models="round-1", test=False)
    assert refusal is not None
    assert "(e)" in refusal


ASKS = """
import sys
from pathlib import Path
from fedgt.privacy import Ledger
account = Ledger.kept_in(Path(sys.argv[1]), clients="abcde", promised=2)
print("ready", flush=True)
sys.stdin.readline()
print(account.permit([dict.fromkeys(sys.argv[2], 1.0)], models="round-1", test=False)[0] is None, flush=True)
"""


def test_two_servers_with_one_account_cannot_both_open_what_together_shows_a_client(tmp_path: Path) -> None:
    """Both have read the account before either asks."""
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", ASKS, str(tmp_path / "account"), members],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for members in ("abcde", "abcd")
    ]
    for server in servers:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("go\n")
        server.stdin.flush()
    answers = sorted(server.communicate()[0].strip() for server in servers)
    assert answers == ["False", "True"]


def test_where_locks_do_not_work_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    account = Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2)

    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(SpecError, match="local disk"):
        account.permit([ALL], models="round-1", test=False)
    with pytest.raises(SpecError, match="local disk"):
        Ledger.kept_in(tmp_path / "account", clients=NAMES, promised=2)
