"""A session as bytes: it goes on in another process as if nothing had happened, and only there."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedgt.errors import ProtocolError
from fedgt.secagg import (
    ClientSession,
    Credentials,
    FixedPoint,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
)
from fedgt.secagg.challenge import seed_hash

IDS = ("a", "b", "c", "d")
PLAN = RoundPlan(
    run="run",
    colluders=0,
    round=1,
    purpose="test",
    groups=(("a", "b", "c"), ("b", "c", "d")),
    thresholds=(2, 2),
    weights=dict.fromkeys(IDS, 1),
    encoding=FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
    tensors=(TensorSpec(name="w", shape=(3,)),),
)


def everybody(*, signed: bool) -> Mapping[str, Credentials | None]:
    if not signed:
        return dict.fromkeys((*IDS, "server"))
    identities = {name: Identity.generate(name) for name in (*IDS, "server")}
    registry = Registry(server=identities["server"].public, clients={name: identities[name].public for name in IDS})
    return {name: Credentials(identity=one, registry=registry) for name, one in identities.items()}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("leaves", [None, "a"])
@pytest.mark.parametrize("seed", [b"", bytes(16)], ids=["unasked", "asked"])
def test_sums_are_the_same_when_every_session_is_suspended_between_all_stages(
    signed: bool, leaves: str | None, seed: bytes
) -> None:
    """Also when a client vanishes before its input arrives, so that its mask key is rebuilt from suspended shares.

    Where a challenge is asked, the vector and the pad are in the bytes until it is answered.
    """
    credentials = everybody(signed=signed)
    plan = replace(PLAN, challenges=(seed_hash(seed),) if seed else ())
    server = ServerSession(plan, credentials=credentials["server"], seeds=(seed,) if seed else ())
    states: dict[str, bytes] = {}

    def resumed(name: str) -> ClientSession:
        session = ClientSession(name, credentials=credentials[name])
        if name in states:
            session.resume(states.pop(name))
        return session

    def stage(name: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {}
        for client, request in requests.items():
            if client == leaves and name not in ("keys", "shares"):
                continue
            session = resumed(client)
            if name == "masked":
                replies[client] = session.masked(request, {"w": np.full(3, float(IDS.index(client) + 1))})
            else:
                replies[client] = getattr(session, name)(request)
            if not session.closed:
                states[client] = session.suspend()
                assert session.closed
        return replies

    requests = server.shares(stage("keys", server.keys()), {})
    requests = server.masked(stage("shares", requests), {})
    masked = stage("masked", requests)
    gone = {} if leaves is None else {leaves: "left"}
    authorise = lambda members: (None,) * len(members)  # noqa: E731
    if signed:
        requests = server.agree(masked, gone, authorise=authorise)
        requests = server.unmask(stage("agree", requests), {})
    else:
        requests = server.unmask(masked, gone, authorise=authorise)
    sums = server.results(stage("unmask", requests), {})
    assert [one.status for one in sums] == ["open", "open"]
    expected = (6.0, 9.0) if leaves is None else (5.0, 9.0)
    for one, value in zip(sums, expected, strict=True):
        assert one.total is not None
        np.testing.assert_allclose(one.total["w"], value, atol=1e-4)
    assert set(states) == set(gone)  # nothing is left of a session that has answered the unmask


def begun(client: str = "a") -> ClientSession:
    session = ClientSession(client)
    session.keys(ServerSession(PLAN).keys()[client])
    return session


def test_a_suspended_session_answers_nothing_itself() -> None:
    session = begun()
    session.suspend()
    with pytest.raises(ProtocolError, match="the session is over"):
        session.shares(b"")


def test_the_secrets_of_the_suspended_object_are_overwritten() -> None:
    session = begun()
    (membership,) = session._groups.values()
    session.suspend()
    assert bytes(membership.secret) == bytes(32)


def test_there_is_nothing_to_suspend_before_the_plan_and_after_the_end() -> None:
    for session in (ClientSession("a"), begun()):
        session.close()
        with pytest.raises(ProtocolError, match="no open session"):
            session.suspend()
    with pytest.raises(ProtocolError, match="no open session"):
        ClientSession("a").suspend()


def test_a_session_is_resumed_by_its_own_client_from_whole_bytes_and_before_anything_else() -> None:
    state = begun().suspend()
    with pytest.raises(ProtocolError, match="that of 'a'"):
        ClientSession("b").resume(state)
    for broken in (state[:-1], state[:40], b"", state.replace(b'"stage":1', b'"stage":9')):
        with pytest.raises(ProtocolError):
            ClientSession("a").resume(broken)
    with pytest.raises(ProtocolError, match="has not begun"):
        begun().resume(state)
