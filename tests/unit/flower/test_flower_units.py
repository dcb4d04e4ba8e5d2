"""The parts of the Flower adapter by themselves."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install '.[flower]'")

from flwr.app import ConfigRecord, Context, Message, RecordDict

import fedgt.flower
from fedgt.engine import Failure
from fedgt.engine.hello import read_hello, signed_hello
from fedgt.engine.transport import StreamingTransport
from fedgt.errors import ProtocolError, SpecError
from fedgt.flower import FlowerTransport, InProcessGrid, site_of
from fedgt.flower.records import frame_of, frame_record
from fedgt.flower.supported import require_supported
from fedgt.secagg import Identity, add_to_registry, write_private_key


@pytest.mark.parametrize("version", ["1.42.0", "1.42.1.dev3", "1.99.0"])
def test_supported_releases_pass(version: str) -> None:
    require_supported(version)


@pytest.mark.parametrize("version", ["1.41.9", "0.19", "2.0.0"])
def test_other_releases_are_refused_with_the_supported_range(version: str) -> None:
    with pytest.raises(SpecError, match=rf"flwr >= 1.42, < 2; flwr {version} is installed"):
        require_supported(version)


def test_every_public_name_exists_and_no_other_does() -> None:
    for name in fedgt.flower.__all__:
        assert getattr(fedgt.flower, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Grid'"):
        fedgt.flower.Grid  # noqa: B018


# Frames in records


@pytest.mark.parametrize("frame", [b"x", bytes(range(256)) * 9])
def test_a_frame_makes_the_round_trip(frame: bytes) -> None:
    assert frame_of(frame_record(frame)) == frame


def test_content_of_another_app_is_refused() -> None:
    for content in (RecordDict(), RecordDict({"fedgt": ConfigRecord({"frame": b"x"})})):
        with pytest.raises(ProtocolError, match="no fedgt frame"):
            frame_of(content)


# Sites


def context(**config: Any) -> Context:
    given = {name.replace("_", "-"): value for name, value in config.items()}
    return Context(run_id=1, node_id=7, node_config=given, state=RecordDict(), run_config={})


def test_a_site_is_what_its_node_config_says(tmp_path: Path) -> None:
    assert site_of(context(partition_id=3)).client == "client-3"
    assert site_of(context(partition_id=3, fedgt_client="north")).client == "north"
    (tmp_path / "policy.toml").write_text("privacy = 4\n")
    site = site_of(
        context(fedgt_client="n", fedgt_policy=str(tmp_path / "policy.toml"), fedgt_journal=str(tmp_path / "r"))
    )
    assert site.policy is not None
    assert (site.policy.privacy, site.journal, site.credentials) == (4, tmp_path / "r", None)


def test_keys_come_in_pairs_and_a_node_has_a_name(tmp_path: Path) -> None:
    identity, server = Identity.generate("north"), Identity.generate("server")
    write_private_key(tmp_path / "north.pem", identity)
    add_to_registry(tmp_path / "all.toml", server, server=True)
    add_to_registry(tmp_path / "all.toml", identity, server=False)
    both = {"fedgt_key": str(tmp_path / "north.pem"), "fedgt_registry": str(tmp_path / "all.toml")}
    found = site_of(context(fedgt_client="north", **both)).credentials
    assert found is not None
    assert found.identity.public == identity.public
    for one, path in both.items():
        with pytest.raises(SpecError, match="belong together"):
            site_of(context(fedgt_client="north", **{one: path}))
    with pytest.raises(SpecError, match="no name"):
        site_of(context())


# The transport


def echo(message: Message, context: Context) -> Message:
    if message.metadata.message_type == "query.fedgt_hello":
        question = read_hello(frame_of(message.content), client="c", credentials=None)
        reply = signed_hello(question, client=f"c{context.node_id}", credentials=None)
        return Message(frame_record(reply), reply_to=message)
    if context.node_id == 3:
        return Message(RecordDict(), reply_to=message)
    return Message(frame_record(frame_of(message.content) + str(context.node_id).encode()), reply_to=message)


def transport(grid: InProcessGrid, *clients: str) -> FlowerTransport:
    made = FlowerTransport(grid, clients, wait=0.0, patience=5.0, poll=0.01)
    made.meet()
    return made


def test_each_client_gets_its_own_message_and_its_reply_comes_back_under_its_name() -> None:
    grid = InProcessGrid(echo, {1: {}, 2: {}, 3: {}})
    carried = transport(grid, "c1", "c2", "c3", "c9")
    assert isinstance(carried, StreamingTransport)
    assert carried.roster.nodes == {"c1": 1, "c2": 2, "c3": 3}
    replies = carried.exchange("begin", {"c2": b"b", "c9": b"x", "c1": b"a", "c3": b"c"}, 5.0)
    assert list(replies) == ["c2", "c9", "c1", "c3"]
    assert (replies["c1"], replies["c2"]) == (b"a1", b"b2")
    lost, other = replies["c9"], replies["c3"]
    assert isinstance(lost, Failure)
    assert lost.reason == "no node of this client is connected"
    assert isinstance(other, Failure)
    assert "no fedgt frame" in other.reason


class Unreliable(InProcessGrid):
    """As a SuperLink that refuses a message for a node (None for its id), or all of them (no ids)."""

    refuse: tuple[int, ...] = ()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        batch = list(messages)
        super().push_messages(batch)
        if len(self.refuse) > 1:
            return []
        ids: list[Any] = [message.metadata.message_id for message in batch]
        for number, message in enumerate(batch):
            if message.metadata.dst_node_id in self.refuse:
                ids[number] = None
        return ids


@pytest.mark.parametrize("refuse", [(2,), (1, 2)])
def test_messages_that_cannot_be_pushed_are_failures_at_once(refuse: tuple[int, ...]) -> None:
    grid = Unreliable(echo, {1: {}, 2: {}})
    carried = transport(grid, "c1", "c2")
    grid.refuse = refuse
    replies = carried.exchange("begin", {"c1": b"a", "c2": b"b"}, 60.0)
    assert {client for client, reply in replies.items() if isinstance(reply, Failure)} == {f"c{n}" for n in refuse}


def test_a_reply_is_known_by_the_message_it_answers_not_by_its_sender() -> None:
    """The SuperLink answers for a dead node, as node 1."""

    class Dead(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            for reply in replies:
                reply.metadata.__dict__["_src_node_id"] = 1
            return replies

    carried = transport(Dead(echo, {1: {}, 2: {}}), "c1", "c2")
    assert carried.exchange("begin", {"c1": b"a", "c2": b"b"}, 5.0) == {"c1": b"a1", "c2": b"b2"}


def test_a_transport_without_clients_is_an_error() -> None:
    with pytest.raises(SpecError, match="no client is named"):
        FlowerTransport(InProcessGrid(echo, {}), ())


def test_a_site_loads_nothing_of_the_server() -> None:
    """A process starts for every message: scipy and scikit-learn would double its start."""
    heavy = "{'scipy', 'sklearn', 'sympy', 'fedgt.federation.round', 'fedgt.privacy', 'fedgt.train'}"
    script = f"import sys, fedgt.flower.site; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_account_of_a_site_loads_no_scipy() -> None:
    """It is asked when a plan comes and when one is signed, each time in a fresh process."""
    script = (
        "import sys; from fedgt.secagg.account import require_promise; "
        "rows = [dict.fromkeys(names, 1.0) for names in ('abcdef', 'defghi', 'ghiabc')]; "
        "more = {'promised': 3, 'cautious': 3, 'largest_share': 0.99, 'colluders': 1, 'weights': {}}; "
        "require_promise({'model': rows}, ['model'], rows[:1], **more); "
        "print('fedgt.privacy' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
