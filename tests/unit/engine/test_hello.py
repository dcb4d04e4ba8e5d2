"""Who is behind a connection, and which names have which addresses."""

from collections.abc import Collection, Iterator

import pytest

from fedgt.engine import PrekeyStore
from fedgt.engine.hello import hello_frame, read_answer, read_hello, signed_hello
from fedgt.engine.roster import Roster
from fedgt.errors import ProtocolError, SignatureError, SpecError
from fedgt.secagg import Credentials, Identity, PrekeyRequest, Registry


def people(*names: str) -> dict[str, Credentials]:
    identities = {name: Identity.generate(name) for name in ("server", *names)}
    registry = Registry(server=identities["server"].public, clients={name: identities[name].public for name in names})
    return {name: Credentials(identity=one, registry=registry) for name, one in identities.items()}


def answered(question: bytes, *, client: str, credentials: Credentials | None, prekeys: bytes = b"") -> bytes:
    asked = read_hello(question, client=client, credentials=credentials)
    return signed_hello(asked, client=client, credentials=credentials, prekeys=prekeys)


def test_a_client_proves_its_name_to_a_fresh_nonce() -> None:
    known = people("north", "south")
    nonce, question = hello_frame(known["server"])
    answer = answered(question, client="north", credentials=known["north"])
    assert read_answer(answer, nonce=nonce, credentials=known["server"]).client == "north"
    with pytest.raises(ProtocolError, match="another question"):
        read_answer(answer, nonce=hello_frame(known["server"])[0], credentials=known["server"])


def test_a_name_without_its_key_is_not_believed() -> None:
    known, strangers = people("north"), people("north", "east")
    nonce, question = hello_frame(None)
    unsigned = answered(question, client="north", credentials=None)
    with pytest.raises(ProtocolError):
        read_answer(unsigned, nonce=nonce, credentials=known["server"])
    assert read_answer(unsigned, nonce=nonce, credentials=None).client == "north"
    nonce, question = hello_frame(strangers["server"])
    for who, reason in (("north", "not by its registered key"), ("east", "not in the registry")):
        answer = answered(question, client=who, credentials=strangers[who])
        with pytest.raises(SignatureError, match=reason):
            read_answer(answer, nonce=nonce, credentials=known["server"])


def test_a_client_answers_its_pinned_server_only() -> None:
    known, strangers = people("north"), people("north")
    with pytest.raises(SignatureError):
        answered(hello_frame(strangers["server"])[1], client="north", credentials=known["north"])


def test_different_versions_of_fedgt_do_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    question = hello_frame(None)[1]
    monkeypatch.setattr("fedgt.engine.hello.__version__", "99")
    with pytest.raises(ProtocolError, match="has fedgt 99, the server has"):
        answered(question, client="north", credentials=None)


# The roster


class Town:
    """Addresses with names behind them; each answers with its name and, as prekeys, how often it was asked."""

    def __init__(self, **names: int) -> None:
        self.behind = {node: name for name, node in names.items()}
        self.asked: list[list[int]] = []
        self.mute: set[int] = set()

    def online(self) -> list[int]:
        return list(self.behind)

    def ask(self, nodes: Collection[int], question: bytes, timeout: float) -> Iterator[tuple[int, bytes | str]]:
        self.asked += [list(nodes)] if nodes else []
        for node in nodes:
            times = sum(node in one for one in self.asked)
            reply = answered(question, client=self.behind[node], credentials=None, prekeys=b"%d" % times)
            yield node, "silent" if node in self.mute else reply


def roster(town: Town, *clients: str, prekeys: PrekeyStore | None = None) -> Roster[int]:
    return Roster(clients, town.online, town.ask, credentials=None, prekeys=prekeys or PrekeyStore())


def test_known_nodes_are_asked_again_only_for_prekeys_that_are_missing_and_wanted() -> None:
    town = Town(a=1, b=2, c=3)
    store = PrekeyStore(request=PrekeyRequest(run="run", round=1, groups=2))
    known = roster(town, "a", "b", "c", prekeys=store)
    assert known.meet(1.0) == ("a", "b", "c")
    assert store.published == {"a": b"1", "b": b"1", "c": b"1"}
    assert known.meet(1.0) == ("a", "b", "c")
    assert town.asked == [[1, 2, 3]]
    store.published = {"a": b"new"}
    assert known.meet(1.0, without=["c"]) == ("a", "b", "c")
    assert town.asked == [[1, 2, 3], [2]]
    assert store.published == {"a": b"new", "b": b"2"}
    store.request = None
    store.published = {}
    assert known.meet(1.0) == ("a", "b", "c")
    assert len(town.asked) == 2


def test_a_known_node_that_gives_no_prekeys_is_not_there_and_is_given_up_after_three_times() -> None:
    town = Town(a=1, b=2)
    store = PrekeyStore(request=PrekeyRequest(run="run", round=1, groups=1))
    known = roster(town, "a", "b", prekeys=store)
    assert known.meet(1.0) == ("a", "b")
    town.mute = {2}
    del store.published["b"]
    for _ in range(5):
        assert known.meet(1.0) == ("a",)
        assert known.refused == {2: "silent"}
    assert town.asked == [[1, 2], [2], [2], [2]]
    town.mute = set()
    town.behind[3] = "c"  # somebody comes: everybody gets another chance
    assert known.meet(1.0) == ("a", "b")


def test_who_is_busy_is_not_given_up_while_the_others_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(a=1, b=2)
    town.mute = {2}
    known = roster(town, "a", "b")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 7:
            town.mute = set()

    monkeypatch.setattr("time.sleep", sleep)
    assert known.gather(1.0, wait=3600.0, without=["c"]) == ("a", "b")
    assert town.asked == [[1, 2], *[[2]] * 7]


def test_who_is_not_there_when_the_wait_is_over_is_given_up_after_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(a=1, b=2)
    town.mute = {2}
    known = roster(town, "a", "b")
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert known.gather(1.0, wait=60.0, without=()) == ("a",)
    before = len(town.asked)
    for _ in range(5):
        assert known.meet(1.0) == ("a",)
    assert len(town.asked) == before + 2


def test_a_roster_without_clients_is_an_error() -> None:
    with pytest.raises(SpecError, match="no client is named"):
        roster(Town())
