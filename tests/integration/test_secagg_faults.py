"""Whatever happens to clients, wire and server: per group an exact sum with its members, or an erasure with its reason."""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.engine import (
    ClientEndpoint,
    Failure,
    LocalTransport,
    PrekeyStore,
    SecureSums,
    TrainedModel,
    secure_sums,
)
from fedgt.engine.hello import hello_frame, read_answer
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import PolicyError, ProtocolError
from fedgt.privacy import Ledger
from fedgt.secagg import (
    AgreementLog,
    ClientPolicy,
    Credentials,
    FixedPoint,
    GroupSum,
    Identity,
    PrekeyRequest,
    Registry,
    RoundPlan,
    RunTerms,
    ServerSession,
    TensorSpec,
    default_threshold,
)
from fedgt.secagg.messages import SIGNED_STAGES, plan_message
from fedgt.types import Parameters
from slow_cases import slow, tries

IDS = tuple(f"c{number:02d}" for number in range(15))
ROWS = tuple(tuple(IDS[start + offset] for offset in (0, 1, 3, 7)) for start in range(8))
SERVER = Identity.generate("server")
CLIENTS = {name: Identity.generate(name) for name in IDS}
REGISTRY = Registry(server=SERVER.public, clients={name: one.public for name, one in CLIENTS.items()})
SERVES = Credentials(identity=SERVER, registry=REGISTRY)
LEAST = ClientPolicy(privacy=2, colluders=0)
"""The weakest promise with which a client that has an identity starts at all."""


def model_of(number: int) -> dict[str, Any]:
    """Another global model every round, far from the others."""
    return {"w": np.full((2, 3), 8.0 * number)}


def update_of(name: str, number: int) -> float:
    return (IDS.index(name) + 1) * (number + 1) / 64


@dataclass
class Steady:
    """Adds a number that depends on the client and the round."""

    name: str

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + update_of(self.name, round)}, samples=1)


def make_plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 0,
        "purpose": "test",
        "groups": ROWS,
        "thresholds": (3,) * 8,
        "weights": dict.fromkeys(IDS, 1),
        "encoding": FixedPoint(clip=64.0, fraction_bits=20, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(2, 3)),),
    }
    return RoundPlan(**(fields | changes))


def endpoint(name: str, **options: Any) -> ClientEndpoint:
    credentials = Credentials(identity=CLIENTS[name], registry=REGISTRY)
    return ClientEndpoint(name, Steady(name), credentials=credentials, **({"policy": LEAST} | options))


def federation(**options: Any) -> dict[str, ClientEndpoint]:
    return {name: endpoint(name, **options) for name in IDS}


def local(clients: Mapping[str, ClientEndpoint]) -> LocalTransport:
    return LocalTransport({name: one.handle for name, one in clients.items()})


def take(transport: Any, plan: RoundPlan, **options: Any) -> SecureSums:
    chosen: dict[str, Any] = {"authorise": lambda members: (None,) * len(members), "timeout": 20.0} | options
    return secure_sums(transport, plan, model_of(plan.round), **{"credentials": SERVES, **chosen})


def assert_exact(one: GroupSum, number: int = 0) -> None:
    assert one.status == "open"
    assert one.total is not None
    expected = sum(update_of(name, number) for name in one.members)
    np.testing.assert_array_equal(one.total["w"], np.full((2, 3), expected))


ORDER = {"hello": 0} | {stage: number for number, stage in enumerate(SIGNED_STAGES)} | {"begin": 1, "finish": 4}


@dataclass
class Chaos:
    """Per client a fault from one stage on: silence, or rubbish of some kind in the place of the reply."""

    inner: LocalTransport
    faults: Mapping[str, tuple[str, str]]
    old: dict[str, bytes] = field(default_factory=dict)

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        replies = self.inner.exchange(stage, messages, timeout)
        for name, (at, kind) in self.faults.items():
            reply = replies.get(name)
            if isinstance(reply, bytes) and ORDER[stage] >= ORDER[at]:
                replies[name] = self._spoilt(name, kind, reply)
        self.old.update({name: reply for name, reply in replies.items() if isinstance(reply, bytes)})
        return replies

    def _spoilt(self, name: str, kind: str, reply: bytes) -> bytes | Failure:
        match kind:
            case "silence":
                return Failure(client=name, reason="left")
            case "rubbish":
                return b"rubbish" * 9
            case "short":
                return reply[: len(reply) // 2]
            case "long":
                return reply + b"\0" * 8
            case "replay":
                return self.old.get(name, b"")
            case "another":
                return self.old.get(IDS[(IDS.index(name) + 1) % 15], b"")
        middle = len(reply) // 2
        return reply[:middle] + bytes([reply[middle] ^ 1]) + reply[middle + 1 :]


KINDS = ("silence", "rubbish", "short", "long", "replay", "another", "flipped")


def introduced(transport: Any, prekeys: PrekeyStore) -> None:
    """Everybody says who it is, and publishes prekeys."""
    nonce, question = hello_frame(SERVES, prekeys.request)
    for name, reply in transport.exchange("hello", dict.fromkeys(IDS, question), 20.0).items():
        with contextlib.suppress(ProtocolError):
            if isinstance(reply, bytes):
                answer = read_answer(reply, nonce=nonce, credentials=SERVES)
                if answer.client == name:
                    prekeys.published[name] = answer.prekeys


def check_schedule(seed: int) -> None:
    """Random faults of a random number of clients; the floor is r = 3 on the real members, kept by the ledger."""
    rng = np.random.default_rng([6, seed])
    names = rng.choice(IDS, size=int(rng.integers(0, 8)), replace=False).tolist()
    faults = {name: (str(rng.choice(SIGNED_STAGES)), str(rng.choice(KINDS))) for name in names}
    ledger = Ledger(clients=IDS, promised=3)
    asked: list[tuple[tuple[str, ...], ...]] = []

    def authorise(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        asked.append(members)
        return ledger.permit([dict.fromkeys(group, 1.0) for group in members], models="round-0", test=True)

    transport = Chaos(local(federation()), faults)
    prekeys = PrekeyStore(request=PrekeyRequest(run="run", round=0, groups=8)) if seed % 2 else None
    if prekeys is not None:
        introduced(transport, prekeys)
    result = take(transport, make_plan(), authorise=authorise, prekeys=prekeys)
    assert len(asked) <= 1
    for one, row in zip(result.sums, ROWS, strict=True):
        assert set(one.dropped) <= set(faults) & set(row), faults
        if one.status == "open":
            assert len(one.members) >= 3, faults
            assert one.members == asked[0][one.group]
            assert_exact(one)
        else:
            assert one.total is None
            assert one.reason, faults
        if not set(row) & set(faults):
            assert one.members == row
            assert one.status == "open" or one.reason.startswith("withheld")


@pytest.mark.parametrize("block", [0, *slow(*range(1, 6))])
def test_random_faults_leave_exact_sums_or_erasures(block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        check_schedule(seed)


@pytest.mark.slow
def test_many_random_schedules_are_exact_or_erased() -> None:
    for seed in range(tries(300)):
        check_schedule(seed)


@pytest.mark.parametrize("stage", ["keys", *slow("shares"), "masked", *slow("agree"), "unmask"])
@pytest.mark.parametrize("promised", [3, 4])
def test_a_client_that_leaves_costs_three_groups_or_none(stage: str, promised: int) -> None:
    """Case 12 with identities: client 3 (groups 0, 2, 3) leaves at each stage."""
    ledger = Ledger(clients=IDS, promised=promised)

    def authorise(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
        return ledger.permit([dict.fromkeys(group, 1.0) for group in members], models="round-0", test=True)

    result = take(Chaos(local(federation()), {"c03": (stage, "silence")}), make_plan(), authorise=authorise)
    lost = promised == 4 and stage in ("keys", "shares", "masked")
    for one in result.sums:
        if one.group in (0, 2, 3) and lost:
            assert one.status == "erased"
            assert one.reason.startswith("withheld")
        else:
            assert_exact(one)


def test_down_to_the_threshold_groups_recover_and_below_it_they_are_lost() -> None:
    plan = make_plan(groups=(IDS,), thresholds=(default_threshold(15),))
    for gone, status in ((7, "open"), (8, "erased")):
        faults = {name: (SIGNED_STAGES[1 + number % 4], "silence") for number, name in enumerate(IDS[:gone])}
        (one,) = take(Chaos(local(federation()), faults), plan).sums
        assert one.status == status
        assert (one.total is None) == (status == "erased")
        if one.total is not None:
            assert_exact(one)


@pytest.mark.parametrize("stage", [*slow("keys", "shares"), "masked", *slow("agree", "unmask")])
def test_a_client_that_hangs_is_left_out_and_nobody_waits_for_it_twice(stage: str) -> None:
    clients = federation()
    release = threading.Event()

    def hang(at: str, payload: bytes) -> bytes:
        if at == stage:
            release.wait()
        return clients["c03"].handle(at, payload)

    transport = LocalTransport({name: one.handle for name, one in clients.items()} | {"c03": hang})
    result = take(transport, make_plan(), timeout=0.3)
    release.set()
    for one in result.sums:
        assert_exact(one)
        if one.group in (0, 2, 3):
            assert one.dropped == {"c03": f"{stage}: timeout: no reply within 0.3 s"}


def test_a_late_reply_never_reaches_the_sum() -> None:
    """The server has closed the stage; the same input given again is refused, not added."""
    plan = make_plan()
    clients = federation()
    server = ServerSession(bound(plan, model_of(0)), credentials=SERVES)
    opening = RoundMessage(session=server.keys()["c00"], parameters=model_of(0)).to_bytes(identity=SERVER)
    requests = server.shares({name: clients[name].handle("keys", opening) for name in IDS})
    requests = server.masked({name: clients[name].handle("shares", message) for name, message in requests.items()})
    replies = {name: clients[name].handle("masked", message) for name, message in requests.items()}
    server.receive("c00", replies["c00"])
    with pytest.raises(ProtocolError, match="no masked input of client c00 is due"):
        server.receive("c00", replies["c00"])
    late = replies.pop("c03")
    requests = server.agree(replies, authorise=lambda members: (None,) * len(members))
    with pytest.raises(ProtocolError, match="no masked input of client c03 is due"):
        server.receive("c03", late)
    answers = {name: clients[name].handle("agree", message) for name, message in requests.items()}
    requests = server.unmask(answers)
    sums = server.results({name: clients[name].handle("unmask", message) for name, message in requests.items()})
    for one in sums:
        assert "c03" not in one.members
        assert_exact(one)


def opening(plan: RoundPlan) -> bytes:
    model = model_of(plan.round)
    message = RoundMessage(session=plan_message(bound(plan, model), identity=SERVER), parameters=model)
    return message.to_bytes(identity=SERVER)


@pytest.mark.parametrize("stage", [*slow("shares"), "masked", *slow("agree", "unmask")])
def test_a_server_that_restarts_has_lost_the_round_and_nothing_leaks(stage: str, tmp_path: Path) -> None:
    """All its messages were kept; no client answers the round again, and the next round ends the old sessions."""
    clients = federation()

    class Restarting(Exception):
        pass

    class Dying:
        def __init__(self) -> None:
            self.inner = local(clients)

        def exchange(self, at: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
            if at == stage:
                raise Restarting
            return self.inner.exchange(at, messages, timeout)

    folder = tmp_path / "agreements"
    with pytest.raises(Restarting):
        take(Dying(), make_plan(), agreements=AgreementLog(REGISTRY, folder))
    log = AgreementLog(REGISTRY, folder)  # the restarted server reads what it has written
    again = take(local(clients), make_plan(), agreements=log)
    assert {one.status for one in again.sums} == {"erased"}
    assert all("answered already" in reason for one in again.sums for reason in one.dropped.values())
    before = [one._session for one in clients.values()]
    for one in take(local(clients), make_plan(round=1), agreements=log).sums:
        assert_exact(one, 1)
    assert all(session is not None and session.closed and not session._groups for session in before)


@pytest.mark.parametrize("stage", [*slow("shares"), "masked", *slow("agree", "unmask")])
def test_of_two_interleaved_rounds_the_later_one_is_exact_and_the_earlier_one_lost(stage: str) -> None:
    clients = federation()
    inner = local(clients)
    later: list[SecureSums] = []

    class Interleaving:
        def exchange(self, at: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
            if at == stage:
                later.append(take(inner, make_plan(round=1), agreements=log))
            return inner.exchange(at, messages, timeout)

    log = AgreementLog(REGISTRY)
    earlier = take(Interleaving(), make_plan(round=0), agreements=log)
    assert {one.status for one in earlier.sums} == {"erased"}
    for one in later[0].sums:
        assert_exact(one, 1)


@pytest.mark.slow
def test_many_rounds_with_the_same_identities(tmp_path: Path) -> None:
    """No degradation, no reuse: every round is exact and as large on the wire as the first one, give or take digits."""
    names = IDS[:4]
    registry = Registry(server=SERVER.public, clients={name: CLIENTS[name].public for name in names})
    serves, log = Credentials(identity=SERVER, registry=registry), AgreementLog(registry)
    clients = {
        name: ClientEndpoint(
            name,
            Steady(name),
            policy=LEAST,
            credentials=Credentials(identity=CLIENTS[name], registry=registry),
            journal=tmp_path / name if name == "c00" else None,
        )
        for name in names
    }
    sizes = []
    for number in range(tries(200) + 1):
        plan = make_plan(round=number, groups=(names,), thresholds=(3,), weights=dict.fromkeys(names, 1))
        result = take(local(clients), plan, credentials=serves, agreements=log)
        assert_exact(result.sums[0], number)
        sizes.append(result.bytes_up)
    assert max(sizes) - min(sizes) <= 4 * 5 * 2 + 40
    with pytest.raises(ProtocolError, match="round 7 is over"):
        clients["c00"].handle("keys", opening(make_plan(round=7)))


def test_a_client_sends_little_more_than_its_vectors() -> None:
    """Per client at most 1.1 x groups x parameters x ring width + 5 kB, here with hardly any parameters."""
    clients = federation()
    sent = dict.fromkeys(IDS, 0)

    def counting(name: str) -> Any:
        def answer(stage: str, payload: bytes) -> bytes:
            reply = clients[name].handle(stage, payload)
            sent[name] += len(reply)
            return reply

        return answer

    take(LocalTransport({name: counting(name) for name in IDS}), make_plan())
    for name in IDS:
        groups = sum(name in row for row in ROWS)
        assert sent[name] <= 1.1 * groups * 6 * 4 + 5000


# What a client decides --------------------------------------------------------------------------------------------


def test_a_round_cannot_be_asked_for_again_after_the_client_restarted(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    endpoint("c00", journal=journal).handle("keys", opening(make_plan(round=3)))
    journal.write_bytes(journal.read_bytes() + b'["run", 4')  # a crash while the next one was written
    restarted = endpoint("c00", journal=journal)
    with pytest.raises(ProtocolError, match="round 3 is over"):
        restarted.handle("keys", opening(make_plan(round=3)))
    restarted.handle("keys", opening(make_plan(round=4)))
    assert journal.read_text() == '["run", 3]\n["run", 4]\n'


def test_a_run_that_was_left_cannot_be_replayed() -> None:
    client = endpoint("c00")
    client.handle("keys", opening(make_plan(run="first", round=5)))
    client.handle("keys", opening(make_plan(run="second")))
    with pytest.raises(ProtocolError, match="round 5 is over, the latest of run 'first' is 5"):
        client.handle("keys", opening(make_plan(run="first", round=5, purpose="training")))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"weights": {**dict.fromkeys(IDS, 1), "c07": 9}}, "weight of c07 changed"),
        ({"encoding": FixedPoint(clip=32.0, fraction_bits=20, ring_bits=32)}, "clip of the run changed"),
        ({"encoding": FixedPoint(clip=64.0, fraction_bits=8, ring_bits=32)}, "fraction_bits of the run changed"),
        ({"tensors": (TensorSpec(name="w", shape=(2, 3), kind="keep"), TensorSpec(name="v", shape=(1,)))}, "tensors"),
    ],
)
def test_what_was_pinned_with_the_first_plan_cannot_change_without_a_word(change: dict[str, Any], what: str) -> None:
    """Plan downgrade."""
    client = endpoint("c00")
    client.handle("keys", opening(make_plan()))
    plan = make_plan(round=1, **change)
    model = {spec.name: np.zeros(spec.shape) for spec in plan.tensors}
    session = plan_message(bound(plan, model), identity=SERVER)
    message = RoundMessage(session=session, parameters=model).to_bytes(identity=SERVER)
    with pytest.raises(PolicyError, match=what):
        client.handle("keys", message)


def test_with_terms_agreed_beforehand_neither_run_nor_design_can_change() -> None:
    client = endpoint("c00", terms=RunTerms.of(make_plan(), design=True))
    other = ((*ROWS[0][:2], "c05", "c09"), *ROWS[1:])
    for change, what in (
        ({"run": "another"}, "the run changed"),
        ({"groups": other}, "c05, c09 does not belong to group 0"),
        ({"groups": ROWS[:2], "thresholds": (3, 3)}, "8 groups were agreed, now 2"),
    ):
        with pytest.raises(PolicyError, match=what):
            client.handle("keys", opening(make_plan(**change)))
    absent = (ROWS[0][:3], *ROWS[1:])
    client.handle("keys", opening(make_plan(groups=absent, thresholds=(3, *(3,) * 7))))


def test_sums_that_together_single_a_client_out_are_refused_by_the_client_itself() -> None:
    """The server's ledger is not asked here: two sums that differ by one client."""
    policy = ClientPolicy(privacy=3, colluders=0)
    clients = federation(policy=policy)
    log = AgreementLog(REGISTRY)
    (first,) = take(local(clients), make_plan(groups=(IDS[:9],), thresholds=(5,)), agreements=log).sums
    assert_exact(first)
    less = make_plan(purpose="more", groups=(IDS[:8],), thresholds=(5,))
    (second,) = take(local(clients), less, agreements=log).sums
    assert second.status == "erased"
    assert all("this client's promise is 3" in reason for reason in second.dropped.values())
    (again,) = take(local(clients), make_plan(purpose="again", groups=(IDS[:9],), thresholds=(5,)), agreements=log).sums
    assert_exact(again)


def test_a_client_answers_only_so_many_sums_about_one_local_model() -> None:
    client = endpoint("c00", policy=ClientPolicy(privacy=2, colluders=0, sums_per_round=2))
    for purpose in ("test", "training"):
        client.handle("keys", opening(make_plan(purpose=purpose)))
    with pytest.raises(PolicyError, match="sums_per_round"):
        client.handle("keys", opening(make_plan(purpose="one-more")))
    client.handle("keys", opening(make_plan(round=1)))
