"""An endpoint as bytes: a fresh process per message answers as one process would, and refuses no less."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.engine import ClientEndpoint, LocalTransport, SecureSums, TrainedModel, secure_sums
from fedgt.engine.hello import hello_frame
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import ProtocolError
from fedgt.secagg import (
    ClientPolicy,
    FixedPoint,
    PrekeyRequest,
    RoundPlan,
    RunTerms,
    ServerSession,
    TensorSpec,
    weiszfeld_encoding,
)
from fedgt.types import Parameters

IDS = ("a", "b", "c")
MODEL: dict[str, Any] = {"w": np.full((2, 2), 1.0, dtype=np.float32), "n": np.array(7)}


class Shift:
    """Adds a constant, and counts how often it is trained."""

    def __init__(self, shift: float) -> None:
        self.shift, self.trained = shift, 0

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained += 1
        return TrainedModel(parameters={**parameters, "w": parameters["w"] + np.float32(self.shift)}, samples=10)


def plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "run": "run",
        "colluders": 0,
        "round": 1,
        "purpose": "test",
        "groups": (IDS,),
        "thresholds": (2,),
        "weights": dict.fromkeys(IDS, 1),
        "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
        "tensors": (TensorSpec(name="w", shape=(2, 2)), TensorSpec(name="n", shape=(), kind="keep")),
    }
    return RoundPlan(**(fields | changes))


def opening(agreed: RoundPlan) -> bytes:
    return RoundMessage(session=ServerSession(bound(agreed, MODEL)).keys()["a"], parameters=MODEL).to_bytes()


class Amnesia:
    """Makes a new endpoint for every message, with nothing but the bytes of the one before."""

    def __init__(self, name: str, client: Shift, **options: Any) -> None:
        self.make: Callable[[], ClientEndpoint] = lambda: ClientEndpoint(name, client, **options)
        self.state = b""
        self.sizes: list[int] = []

    def handle(self, stage: str, payload: bytes) -> bytes:
        endpoint = self.make()
        if self.state:
            endpoint.resume(self.state)
        try:
            return endpoint.handle(stage, payload)
        finally:
            self.state = endpoint.suspend()
            self.sizes.append(len(self.state))


def clients(**options: Any) -> dict[str, Amnesia]:
    return {name: Amnesia(name, Shift(number), **options) for number, name in enumerate(IDS)}


def take(sites: Mapping[str, Any], agreed: RoundPlan, model: Any = MODEL, **options: Any) -> SecureSums:
    transport = LocalTransport({name: site.handle for name, site in sites.items()})
    return secure_sums(
        transport, agreed, model, authorise=lambda members: (None,) * len(members), timeout=10.0, **options
    )


def test_rounds_give_the_same_sums_as_endpoints_that_stay() -> None:
    staying = {name: ClientEndpoint(name, Shift(number)) for number, name in enumerate(IDS)}
    forgetting = clients()
    for number in (1, 2):
        (kept,), (lost,) = (take(sites, plan(round=number)).sums for sites in (staying, forgetting))
        assert kept.total is not None
        assert lost.total is not None
        np.testing.assert_array_equal(kept.total["w"], lost.total["w"])


def test_a_weiszfeld_round_survives_with_its_center() -> None:
    agreed = plan(
        task="weiszfeld",
        smoothing=0.1,
        update_clip=8.0,
        encoding=weiszfeld_encoding(update_clip=8.0, smoothing=0.1, members=3),
    )
    center = {"w": np.ones((2, 2)), "n": np.array(0)}
    assert take(clients(), agreed, center=center).sums[0].status == "open"


def test_nothing_secret_and_no_model_is_left_after_the_unmask() -> None:
    large = {"w": np.zeros((100, 100), dtype=np.float32)}
    sites = clients()
    take(sites, plan(tensors=(TensorSpec(name="w", shape=(100, 100)),)), large)
    for site in sites.values():
        after_keys, after_shares, after_masked, after_unmask = site.sizes
        assert min(after_keys, after_shares) > 40_000  # the global model, until it is trained
        assert after_masked < 3_000  # keys and shares
        assert after_unmask < 700  # pinned terms


def test_the_local_model_is_not_kept_so_a_second_sum_of_the_round_is_refused() -> None:
    sites = clients()
    take(sites, plan())
    again = take(sites, plan(purpose="same-round"))
    assert again.sums[0].status == "erased"
    assert "round 1 is over" in again.sums[0].dropped["a"]


def test_past_rounds_and_changed_terms_are_refused_by_a_resumed_endpoint() -> None:
    sites = clients()
    take(sites, plan(round=5))
    for changed, reason in (
        ({"round": 5}, "is over"),
        ({"round": 4}, "is over"),
        ({"round": 6, "weights": {"a": 10, "b": 1, "c": 1}}, "weight of a changed"),
    ):
        assert reason in take(sites, plan(**changed)).sums[0].dropped["a"]


def test_agreed_terms_come_from_the_arguments_again_with_the_design() -> None:
    terms = RunTerms.of(plan(), design=True)
    sites = clients(terms=terms)
    assert take(sites, plan()).sums[0].status == "open"
    refused = take(sites, plan(round=2, groups=(("a", "b"), ("b", "c")), thresholds=(2, 2)))
    assert "the design changed" in refused.sums[0].dropped["a"]


def test_the_journal_and_the_state_agree_on_the_latest_round(tmp_path: Path) -> None:
    sites = {name: Amnesia(name, Shift(0), journal=tmp_path / name) for name in IDS}
    take(sites, plan(round=3))
    for site in sites.values():
        site.state = b""  # the site has lost its state; the journal is on its disk
    assert "is over" in take(sites, plan(round=3)).sums[0].dropped["a"]


@pytest.mark.parametrize("what", ["session", "prekeys"])
def test_a_state_is_resumed_once_where_there_is_a_journal(tmp_path: Path, what: str) -> None:
    def make(journal: Path | None) -> ClientEndpoint:
        return ClientEndpoint("a", Shift(1.0), journal=journal)

    for journal in (tmp_path / "rounds", None):
        first = make(journal)
        if what == "session":
            first.handle("keys", opening(plan()))
        else:
            first.handle("hello", hello_frame(None, PrekeyRequest(run="run", round=2, groups=1))[1])
        state = first.suspend()
        make(journal).resume(state)
        if journal is None:
            make(journal).resume(state)  # without a journal it rests on whoever keeps the state
            continue
        with pytest.raises(ProtocolError, match="used already, by another process"):
            make(journal).resume(state)


def test_spoilt_messages_in_a_row_do_not_use_up_a_state(tmp_path: Path) -> None:
    site = Amnesia("a", Shift(1.0), journal=tmp_path / "rounds")
    for number in (1, 2):
        site.handle("keys", opening(plan(round=number)))
        for _ in range(3):
            with pytest.raises(ProtocolError, match="malformed"):
                site.handle("keys", b"rubbish")
        with pytest.raises(ProtocolError, match="malformed"):
            site.handle("shares", b"rubbish")  # the session was still open, and is now over


def test_a_client_that_is_asked_for_keys_twice_before_it_trains_counts_both_for_its_own_privacy() -> None:
    """The sums ab and ac mix two clients at least; with abc they show c alone, also when a process ended in between."""
    sites = clients(policy=ClientPolicy(privacy=2, colluders=0))
    pairs = plan(groups=(("a", "b"), ("a", "c")), thresholds=(2, 2), purpose="pairs")
    endpoint = sites["a"]
    endpoint.handle("keys", opening(pairs))
    with pytest.raises(ProtocolError, match="this client's promise is 2"):
        endpoint.handle("keys", opening(plan(purpose="all")))


def test_a_failed_stage_leaves_no_session() -> None:
    sites = clients()
    with pytest.raises(ProtocolError):
        sites["a"].handle("keys", b"nonsense")
    take(sites, plan())
    with pytest.raises(ProtocolError):
        sites["a"].handle("unmask", b"nonsense")
    with pytest.raises(ProtocolError, match="no plan has come yet"):
        sites["a"].handle("unmask", b"nonsense")


def test_broken_bytes_are_a_protocol_error() -> None:
    site = Amnesia("a", Shift(0))
    with pytest.raises(ProtocolError):
        site.handle("keys", b"")
    for broken in (b"", site.state[:-5], site.state + b"x" * 9, site.state.replace(b'"rounds"', b'"pounds"')):
        with pytest.raises(ProtocolError):
            ClientEndpoint("a", Shift(0)).resume(broken)
    with pytest.raises(ProtocolError, match="that of 'a'"):
        ClientEndpoint("b", Shift(0)).resume(site.state)
