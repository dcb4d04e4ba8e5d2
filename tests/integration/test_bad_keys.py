"""Key material with which nobody can agree costs nobody else anything: in rounds at once, and over a restart.

docs/threat-model.md names these tests line by line.
"""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from fedgt import TrainedModel
from fedgt.engine import ClientEndpoint, LocalTransport, secure_sums
from fedgt.errors import ProtocolError
from fedgt.secagg import (
    AgreementLog,
    ClientSession,
    GroupSum,
    RoundPlan,
    ServerSession,
    fit_fixed_point,
    tensor_specs,
)
from fedgt.secagg.membership import keys_statement
from fedgt.secagg.messages import SIGNED_STAGES, STAGES, GroupPart, read_stage_message, stage_message
from fedgt.types import FloatArray, Parameters
from secagg_lab import FOUR, LEAST, UPDATE, Consortium, allow, answer, make_plan

HOW = ["equal", "zero", "another zero"]
MODES = pytest.mark.parametrize("consortium", [None, FOUR], ids=["anonymous", "identities"])
SIX = Consortium.of("abcdef")
STEPS = {1: UPDATE["w"], 2: np.array([-1.0, 0.5, 0.25]), 3: np.array([0.25, 1.0, -0.5])}
MODEL: Parameters = {"w": np.zeros(3)}


def bad(
    plan: RoundPlan, session: ClientSession, reply: bytes, what: str, consortium: Consortium | None, who: str = "a"
) -> bytes:
    """The same reply of stage "keys" with other keys, signed by the same client."""
    identity = None if consortium is None else consortium.clients[who]
    parts = []
    for part in read_stage_message(
        reply if identity is None else reply[:-64], plan=plan, stage="keys", client=who
    ).parts:
        share, mask, rest = bytes(part.body[:32]), bytes(part.body[32:64]), bytes(part.body[64:96])
        public = {
            "equal": share + share + rest,
            "zero": bytes(32) + mask + rest,
            "another zero": share + bytes(32) + rest,
        }[what]
        if identity is not None:
            public += identity.sign("keys", keys_statement(session._groups[part.group].context, who, public))
        parts.append(GroupPart(group=part.group, body=public))
    return stage_message(plan, "keys", who, parts, identity=identity)


def fresh(consortium: Consortium | None, name: str) -> ClientSession:
    return ClientSession(name) if consortium is None else ClientSession(name, credentials=consortium.of_client(name))


def stages(
    plan: RoundPlan, consortium: Consortium | None, what: str, found: list[GroupSum], *, restarts: bool
) -> Iterator[None]:
    """A round, stage by stage, in which client a publishes bad keys; its peers may be new processes after each stage."""
    server = ServerSession(plan, credentials=None if consortium is None else consortium.of_server())
    people = {name: fresh(consortium, name) for name in plan.clients}
    order = STAGES if consortium is None else SIGNED_STAGES
    requests = server.keys()
    for stage, following in zip(order, (*order[1:], "results"), strict=True):
        replies = {}
        for name, message in requests.items():
            reply = answer(people[name], stage, message)
            replies[name] = (
                bad(plan, people[name], reply, what, consortium) if (name, stage) == ("a", "keys") else reply
            )
        yield
        if restarts:
            for name, old in people.items():
                if not old.closed:
                    people[name] = fresh(consortium, name)
                    people[name].resume(old.suspend())
        if following == "results":
            found += server.results(replies)
        else:
            asked = {"authorise": allow} if stage == "masked" else {}
            requests = getattr(server, following)(replies, **asked)
    assert all(one.closed for name, one in people.items() if name != "a"), "they have gone to the end"


def all_but_a(sums: list[GroupSum], plan: RoundPlan, step: FloatArray = UPDATE["w"]) -> bool:
    """Every sum is there, exactly, over all members but a."""
    assert len(sums) == len(plan.groups)
    for one, group in zip(sums, plan.groups, strict=True):
        assert set(one.members) == set(group) - {"a"}
        assert one.total is not None
        assert np.array_equal(one.total["w"], len(one.members) * step)
    return True


@MODES
@pytest.mark.parametrize("what", HOW)
@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a process a stage"])
def test_bad_keys_in_rounds_at_once_cost_no_peer_a_sum(
    what: str, consortium: Consortium | None, restarts: bool
) -> None:
    """Three rounds with the same clients go on at the same time, message by message; in each of them a has bad keys."""
    plans = [
        make_plan("abcd", "bcd", "abc", run=run, round=number) for run, number in [("one", 1), ("two", 1), ("three", 7)]
    ]
    found: list[list[GroupSum]] = [[] for _ in plans]
    for _ in zip_longest(
        *(stages(plan, consortium, what, sums, restarts=restarts) for plan, sums in zip(plans, found, strict=True))
    ):
        pass
    assert all(all_but_a(sums, plan) for sums, plan in zip(found, plans, strict=True))


class Site:
    """Moves the model by another step in each round: equal updates would count as sums of one local model."""

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        return TrainedModel(parameters={"w": parameters["w"] + STEPS[round]}, samples=1)


class Bad(ClientEndpoint):
    """Publishes bad keys, round after round."""

    what = "equal"
    consortium: Consortium | None = None

    def handle(self, stage: str, payload: bytes) -> bytes:
        reply = super().handle(stage, payload)
        if stage != "keys":
            return reply
        assert self._session is not None
        return bad(self._session.plan, self._session, reply, self.what, self.consortium)


def endpoints(consortium: Consortium | None, folder: Path, what: str) -> Mapping[str, ClientEndpoint]:
    """Those of six clients, with what their journals remember."""
    people = {}
    for name in "abcdef":
        people[name] = (Bad if name == "a" else ClientEndpoint)(
            name,
            Site(),
            policy=LEAST if consortium is not None else None,
            credentials=None if consortium is None else consortium.of_client(name),
            journal=folder / name,
        )
    liar = people["a"]
    assert isinstance(liar, Bad)
    liar.what, liar.consortium = what, consortium
    return people


@pytest.mark.parametrize("consortium", [None, SIX], ids=["anonymous", "identities"])
@pytest.mark.parametrize("what", HOW)
def test_bad_keys_over_a_restart_of_everybody_cost_nobody_else_a_round(
    what: str, consortium: Consortium | None, tmp_path: Path
) -> None:
    """Each round has new processes of the server and of all clients; only their files are left."""
    for number in range(1, 4):
        people = endpoints(consortium, tmp_path, what)
        plan = RoundPlan(
            run="run",
            round=number,
            purpose="training",
            groups=(tuple("abcdef"), tuple("def")),
            thresholds=(4, 2),
            weights=dict.fromkeys("abcdef", 1),
            encoding=fit_fixed_point(clip=8.0, fraction_bits=16, weight_sum=6, count_sum=18),
            tensors=tensor_specs(MODEL),
            colluders=0,
        )
        taken = secure_sums(
            LocalTransport({name: one.handle for name, one in people.items()}),
            plan,
            {"w": 100.0 * np.roll(np.array([1.0, -2.0, 3.0]), number)},
            authorise=allow,
            timeout=20.0,
            credentials=None if consortium is None else consortium.of_server(),
            agreements=None if consortium is None else AgreementLog(consortium.registry, tmp_path / "server"),
        )
        assert all_but_a(list(taken.sums), plan, STEPS[number])
        assert {one.dropped["a"].partition(":")[0] for one in taken.sums if "a" in one.dropped} == {"keys"}
        assert not taken.faults


def test_a_client_with_an_identity_cannot_publish_bad_keys_in_the_name_of_another() -> None:
    """Signed by a, said to be b's: b is not left out for it."""
    plan = make_plan("abcd")
    server = ServerSession(plan, credentials=FOUR.of_server())
    people = {name: fresh(FOUR, name) for name in plan.clients}
    replies = {name: answer(people[name], "keys", message) for name, message in server.keys().items()}
    replies["b"] = bad(plan, people["a"], replies["a"], "zero", FOUR)
    requests = server.shares(replies)
    assert "b" not in requests, "its own message did not arrive; that is the network's, and proves nothing about it"
    with pytest.raises(ProtocolError, match="once each"):
        server.shares(replies)
