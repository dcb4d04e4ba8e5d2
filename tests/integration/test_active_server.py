"""A server that lies, with signed identities, pinned keys and the limits that the guide recommends: what it tries, and gets.

Every test plays the attack against real endpoints, as the attacker would: the server signs whatever helps it.
docs/threat-model.md names these tests line by line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedgt.design import named_design
from fedgt.engine import ClientEndpoint, TrainedModel
from fedgt.engine.round_message import RoundMessage, bound
from fedgt.errors import FedGTError, ProtocolError, SpecError
from fedgt.secagg import (
    AgreementLog,
    ClientPolicy,
    FixedPoint,
    Identity,
    Link,
    RoundPlan,
    RunTerms,
    ServerSession,
    TensorSpec,
    default_threshold,
    quorum,
)
from fedgt.secagg.agreement import chain_of, links_to_json, signatures_to_json
from fedgt.secagg.messages import GroupPart, plan_message, read_stage_message, stage_message
from fedgt.types import Parameters
from secagg_lab import Consortium

MODEL: dict[str, Any] = {"w": np.zeros((2, 3))}
Lists = Mapping[int, tuple[Sequence[str], Sequence[str]]]
"""Group -> (who is said to be alive, who is said to have dropped)."""


@dataclass
class Site:
    """Its update is its own, and follows the model: nearly the same model, nearly the same update."""

    name: str
    trained: list[int] = field(default_factory=list)
    eyes: Any = 1.0  # what it sees of the model

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        self.trained.append(round)
        rng = np.random.default_rng(list(self.name.encode()))
        own, follows = rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
        seen = np.clip(parameters["w"], -1e3, 1e3) * self.eyes
        return TrainedModel(parameters={"w": parameters["w"] + own + 0.01 * follows @ seen}, samples=1)


@dataclass
class Liar:
    """A server that has all keys of a server, keeps everything that it was ever sent, and signs what it likes."""

    names: tuple[str, ...]
    policy: ClientPolicy
    colluders: int = 1
    folder: Path | None = None
    terms: RunTerms | None = None

    def __post_init__(self) -> None:
        self.people = Consortium(
            server=Identity.generate("server"), clients={name: Identity.generate(name) for name in self.names}
        )
        self.sites = {name: Site(name) for name in self.names}
        self.endpoints = {name: self.endpoint(name) for name in self.names}
        self.log: list[tuple[Link, dict[str, bytes]]] = []
        self.refusals: dict[str, str] = {}

    def endpoint(self, name: str) -> ClientEndpoint:
        return ClientEndpoint(
            name,
            self.sites[name],
            policy=self.policy,
            terms=self.terms,
            credentials=self.people.of_client(name),
            journal=None if self.folder is None else self.folder / name,
        )

    def plan(self, *groups: Sequence[str], **changes: Any) -> RoundPlan:
        fields: dict[str, Any] = {
            "run": "run",
            "round": 1,
            "purpose": "test",
            "groups": tuple(tuple(group) for group in groups),
            "thresholds": tuple(default_threshold(len(group), colluders=self.colluders) for group in groups),
            "weights": {client: 1 for group in groups for client in group},
            "encoding": FixedPoint(clip=8.0, fraction_bits=16, ring_bits=32),
            "tensors": (TensorSpec(name="w", shape=(2, 3)),),
            "colluders": self.colluders,
        }
        return RoundPlan(**(fields | changes))

    def tell(self, client: str, stage: str, message: bytes) -> bytes | None:
        try:
            return self.endpoints[client].handle(stage, message)
        except FedGTError as error:
            self.refusals[client] = str(error)
            return None

    def vectors(
        self,
        plan: RoundPlan,
        models: Callable[[str], Any] = lambda name: MODEL,
        missed: Callable[[str], bytes] | None = None,
    ) -> tuple[RoundPlan, ServerSession, dict[str, bytes]]:
        """All vectors of a plan, as an honest server would collect them; a model for each client.

        `missed` may lie about the agreements that c00 has not heard of.
        """
        bounds = {name: bound(plan, models(name)) for name in plan.clients}
        plan = bounds[plan.clients[0]]
        record = AgreementLog(self.people.registry)
        for link, _ in self.log:
            record.append(link)
        server = ServerSession(plan, credentials=self.people.of_server(), agreements=record)
        openings = server.keys()
        requests = {
            name: RoundMessage(session=openings[name], parameters=models(name)).to_bytes(identity=self.people.server)
            for name in openings
        }
        requests = server.shares(self.answers("keys", requests))
        requests = server.masked(self.answers("shares", requests))
        if missed is not None and "c00" in requests:
            requests["c00"] = self.reattached(plan, "masked", "c00", requests["c00"], missed("c00"))
        return plan, server, self.answers("masked", requests)

    def reattached(self, plan: RoundPlan, stage: str, client: str, message: bytes, attached: bytes) -> bytes:
        """The same request with something else attached, signed as it should be."""
        read = read_stage_message(message[:-64], plan=plan, stage=stage, client=client)
        return stage_message(plan, stage, client, read.parts, attached=attached, identity=self.people.server)

    def answers(self, stage: str, requests: Mapping[str, bytes]) -> dict[str, bytes]:
        replies = {name: self.tell(name, stage, message) for name, message in requests.items()}
        return {name: reply for name, reply in replies.items() if reply is not None}

    def link(self, plan: RoundPlan, server: ServerSession, lists: Lists, **changes: Any) -> Link:
        """An agreement over these lists, whatever really happened."""
        groups = []
        for index, (alive, dropped) in sorted(lists.items()):
            group = server._groups[index]
            order = [client for client in plan.groups[index] if client in alive]
            gone = [client for client in plan.groups[index] if client in dropped]
            group.alive = tuple(plan.groups[index].index(client) for client in order)
            group.sharers = tuple(sorted(plan.groups[index].index(client) for client in (*order, *gone)))
            groups.append(group.opened(plan))
        head = (len(self.log), self.log[-1][0].digest if self.log else chain_of(self.people.registry))
        fields: dict[str, Any] = {
            "number": head[0] + 1,
            "previous": head[1],
            "plan": plan.digest,
            "run": plan.run,
            "round": plan.round,
            "purpose": plan.purpose,
            "task": plan.task,
            "model": plan.inputs["model"],
            "weights": {client: 1 for one in groups for client in one.alive},
            "groups": tuple(groups),
        }
        return Link(**(fields | changes))

    def signed(self, plan: RoundPlan, link: Link, by: Sequence[str]) -> dict[str, bytes]:
        """Who signs the agreement."""
        signatures = {}
        for name in by:
            parts = [
                GroupPart(
                    group=one.group,
                    members=tuple(plan.groups[one.group].index(client) for client in one.alive),
                    dropped=tuple(plan.groups[one.group].index(client) for client in one.dropped),
                )
                for one in link.groups
                if name in one.alive
            ]
            request = stage_message(plan, "agree", name, parts, attached=link.to_json(), identity=self.people.server)
            reply = self.tell(name, "agree", request)
            if reply is not None:
                message = read_stage_message(reply[:-64], plan=plan, stage="agree", client=name)
                signatures[name] = bytes(message.attached)
        return signatures

    def shares(self, plan: RoundPlan, link: Link, signatures: Mapping[str, bytes]) -> dict[str, tuple[int, ...]]:
        """Who releases shares for which groups."""
        released = {}
        for name in link.weights:
            parts = [
                GroupPart(
                    group=one.group,
                    members=tuple(plan.groups[one.group].index(client) for client in one.alive),
                    dropped=tuple(plan.groups[one.group].index(client) for client in one.dropped),
                )
                for one in link.groups
                if name in one.alive
            ]
            request = stage_message(
                plan, "unmask", name, parts, attached=signatures_to_json(signatures), identity=self.people.server
            )
            reply = self.tell(name, "unmask", request)
            if reply is not None:
                message = read_stage_message(reply[:-64], plan=plan, stage="unmask", client=name)
                released[name] = tuple(part.group for part in message.parts)
        return {name: groups for name, groups in released.items() if groups}

    def open(self, plan: RoundPlan, lists: Lists | None = None, **how: Any) -> dict[str, tuple[int, ...]]:
        """A whole round with these lists (by default the true ones): who released shares of what."""
        plan, server, replies = self.vectors(plan, **how)
        arrived = [name for name in plan.clients if name in replies]
        truth = {
            index: ([name for name in group if name in replies], [name for name in group if name not in replies])
            for index, group in enumerate(plan.groups)
        }
        if not arrived:
            return {}
        link = self.link(plan, server, truth if lists is None else lists)
        signatures = self.signed(plan, link, arrived)
        if not signatures:
            return {}
        self.log.append((link, signatures))
        return self.shares(plan, link, signatures)


CAREFUL = ClientPolicy(privacy=4, minimum_group_size=4, sums_per_round=1)
SITES = tuple(f"s{number}" for number in range(5))
"""Five sites that sit in both groups of the first attack."""


# Invented dropouts ------------------------------------------------------------------------------------------------------


def test_dropouts_that_are_invented_in_two_groups_open_nothing() -> None:
    """s0 to s4 are told of v in one sum and not in the other, although all vectors arrived: the difference is v's."""
    liar = Liar((*SITES, "v", "e1", "e2", "f1", "f2"), CAREFUL)
    plan = liar.plan((*SITES, "v", "e1", "e2"), (*SITES, "v", "f1", "f2"))
    lists = {0: ((*SITES, "v"), ("e1", "e2")), 1: (SITES, ("v", "f1", "f2"))}
    assert liar.open(plan, lists) == {}
    assert all("mix only v" in reason for reason in liar.refusals.values())
    assert set(liar.refusals) >= set(SITES)


def test_on_the_default_design_no_invented_dropouts_single_a_client_out() -> None:
    """Ten pairs of groups with four clients or more in common: the rest of both is said to have dropped.

    Most lists are too short for the thresholds or the promise; where they are long enough, the account refuses.
    """
    design = named_design("graded-15x10-b")
    names = tuple(f"c{number:02d}" for number in range(15))
    rows = [tuple(names[j] for j in design.members(i)) for i in range(design.groups)]
    tried = by_account = 0
    for first in range(3):
        for second in range(first + 1, 10):
            common = [name for name in rows[first] if name in rows[second]]
            if len(common) < 4:
                continue
            tried += 1
            liar = Liar(names, CAREFUL)
            victim = common[-1]
            stay = [name for name in common if name != victim]
            lists = {
                first: ((*stay, victim), [name for name in rows[first] if name not in common]),
                second: (stay, [name for name in rows[second] if name not in stay]),
            }
            assert liar.open(liar.plan(*rows), lists) == {}
            by_account += any(f"mix only {victim};" in reason for reason in liar.refusals.values())
    assert tried == 10
    assert by_account >= 1


def test_single_groups_cannot_be_opened_under_two_agreements() -> None:
    """The old rule, a threshold of one group, would let group 0 open under one list and group 1 under another."""
    liar = Liar((*SITES, "v", "e1", "e2", "f1", "f2"), CAREFUL)
    plan, server, _ = liar.vectors(liar.plan((*SITES, "v", "e1", "e2"), (*SITES, "v", "f1", "f2")))
    with_v = liar.link(plan, server, {0: ((*SITES, "v"), ("e1", "e2"))})
    first = liar.signed(plan, with_v, [*SITES, "v"])
    without_v = liar.link(plan, server, {1: (SITES, ("v", "f1", "f2"))})
    second = liar.signed(plan, without_v, [*SITES, "v", "e1", "e2", "f1", "f2"])
    assert len(first) == 6
    assert set(second) <= {"e1", "e2", "f1", "f2"}
    assert liar.shares(plan, without_v, {**first, **second}) == {}
    assert set(liar.shares(plan, with_v, {**first, **second})) <= {*SITES, "v"}, "one agreement has its quorum"


@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_colluders_that_sign_everything_do_not_make_a_second_quorum(colluders: int) -> None:
    """c clients sign both lists; the honest ones are split as well as can be."""
    names = tuple(f"c{number:02d}" for number in range(11))
    liar = Liar(names, ClientPolicy(privacy=4, colluders=colluders), colluders=colluders)
    plan, server, _ = liar.vectors(liar.plan(names))
    everybody = liar.link(plan, server, {0: (names, ())})
    less = liar.link(plan, server, {0: (names[:-1], names[-1:])})
    bad, honest = names[:colluders], names[colluders:]
    half = len(honest) // 2
    signatures = [liar.signed(plan, everybody, honest[:half]), liar.signed(plan, less, honest[half:-1])]
    for link, some in zip((everybody, less), signatures, strict=True):
        some |= {name: link.sign(liar.people.clients[name]) for name in bad}
    needed = quorum(len(names), colluders=colluders)
    assert sum(len(some) >= needed for some in signatures) <= 1
    released = [liar.shares(plan, link, some) for link, some in zip((everybody, less), signatures, strict=True)]
    assert sum(bool(set(one) - set(bad)) for one in released) <= 1


def test_a_quorum_of_those_who_are_left_is_none() -> None:
    """After exclusions the server counts among six of fifteen only: N does not shrink."""
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, CAREFUL)
    assert liar.open(liar.plan(names[:6])) == {}
    assert all("6 of 15 clients of the registry agree" in liar.refusals[name] for name in names[:6])


def test_an_agreement_that_hides_a_group_from_those_who_are_not_in_it_is_noticed() -> None:
    """The list that two sites sign names group 0 only, the one of the others both groups: neither finds a quorum."""
    names = tuple(f"c{number}" for number in range(10))
    liar = Liar(names, CAREFUL)
    plan, server, _ = liar.vectors(liar.plan(names[:6], names[2:8], names))
    some = liar.link(plan, server, {0: (names[:6], ()), 2: (names, ())})
    other = liar.link(plan, server, {1: (names[2:8], ()), 2: (names, ())})
    first, second = liar.signed(plan, some, names[:5]), liar.signed(plan, other, names[5:])
    assert max(len(first), len(second)) < quorum(10, colluders=1)
    assert liar.shares(plan, some, {**first, **second}) == {}
    assert liar.shares(plan, other, {**first, **second}) == {}


# The same model again ---------------------------------------------------------------------------------------------------

EIGHT = tuple(f"c{number}" for number in range(8))


@pytest.mark.parametrize("change", [{}, {"round": 2}, {"run": "another"}, {"purpose": "training"}])
def test_one_client_less_about_the_same_model_is_refused(change: dict[str, Any]) -> None:
    """Round 1 sums c0 to c7, round 2 sums c1 to c7: the difference is c0's, whatever round, run and purpose are called."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert set(liar.open(liar.plan(EIGHT))) == set(EIGHT)
    trained = {name: len(site.trained) for name, site in liar.sites.items()}
    again = liar.plan(EIGHT[1:], **({"round": 2} | change if change != {"purpose": "training"} else change))
    assert liar.open(again) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])
    assert {name: len(site.trained) for name, site in liar.sites.items()} == trained, "refused before anybody trained"


def test_the_same_sum_about_the_same_model_adds_nothing_and_is_answered() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert set(liar.open(liar.plan(EIGHT, round=number))) == set(EIGHT)


def test_a_sum_that_was_signed_and_never_opened_counts_as_opened() -> None:
    """The server says that the first round was lost; it may have kept its signatures."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    plan, server, _ = liar.vectors(liar.plan(EIGHT))
    link = liar.link(plan, server, {0: (EIGHT, ())})
    liar.log.append((link, liar.signed(plan, link, EIGHT)))
    assert liar.open(liar.plan(EIGHT[1:], round=2)) == {}


def test_a_record_without_what_was_signed_is_refused() -> None:
    """The server hides the first agreement and begins the chain again."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    liar.log.clear()
    assert liar.open(liar.plan(EIGHT[1:], round=2)) == {}
    _, _, replies = liar.vectors(liar.plan(EIGHT, round=3))
    assert replies == {}, "no vector leaves a client whose record the server does not have"


def test_a_client_that_was_away_learns_what_was_opened_without_it() -> None:
    """Twelve sites: eleven sum without c00, which is back in round 2, and is asked about the first model in round 3."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    assert set(liar.open(liar.plan(names[1:]), models=far(1))) == set(names[1:])
    assert set(liar.open(liar.plan(names, round=2), models=far(2))) == set(names)
    less = [name for name in names if name != "c05"]
    assert liar.open(liar.plan(less, round=3), models=far(1)) == {}
    assert "mix only c00, c05" in liar.refusals["c00"]


@pytest.mark.parametrize("what", ["the first left out", "another order", "one changed", "one invented"])
def test_missed_agreements_that_were_changed_or_left_out_are_refused(what: str) -> None:
    """What a client has missed must follow its own record, link by link, before it trains."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert liar.open(liar.plan(names[1:], round=number), models=far(number))
    first, second = liar.log
    invented = (replace(first[0], number=3, previous="0" * 64), first[1])
    forged = {
        "the first left out": [second],
        "another order": [second, first],
        "one changed": [(replace(first[0], purpose="other"), first[1]), second],
        "one invented": [first, second, invented],
    }[what]
    _, _, replies = liar.vectors(liar.plan(names, round=3), far(3), missed=lambda name: links_to_json(forged))
    assert "c00" not in replies
    assert liar.sites["c00"].trained == []
    assert "does not follow" in liar.refusals["c00"]


def far(number: int) -> Callable[[str], Any]:
    """The same model for everybody, far from those of other rounds."""
    return lambda name: {"w": np.full((2, 3), 99.0 * number)}


def test_a_shorter_record_is_as_good_as_a_lie_when_it_comes_to_signing() -> None:
    """The server hides the latest agreement from one client: what that one signs then, nobody else does."""
    names = tuple(f"c{number:02d}" for number in range(12))
    liar = Liar(names, ClientPolicy(privacy=4))
    for number in (1, 2):
        assert liar.open(liar.plan(names[1:], round=number), models=far(number))
    hidden = liar.log.pop()
    plan, server, _ = liar.vectors(liar.plan(names, round=3), far(3), missed=lambda name: links_to_json(liar.log))
    link = liar.link(plan, server, {0: (names, ())})
    signatures = liar.signed(plan, link, names)
    assert set(signatures) == set(), "the others have no session left: their records are longer than the server's"
    assert hidden[0].number == 2


# Restarts and two processes ---------------------------------------------------------------------------------------------


def test_the_account_survives_a_restart_of_everybody(tmp_path: Path) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    assert liar.open(liar.plan(EIGHT))
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    assert liar.open(liar.plan(EIGHT[1:], round=2, run="after a restart")) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


def test_two_processes_of_one_client_do_not_both_answer_a_round(tmp_path: Path) -> None:
    """Both have read the journal before either writes it."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    twin = liar.endpoint("c0")
    plan = bound(liar.plan(EIGHT), MODEL)
    opening = RoundMessage(session=plan_message(plan, identity=liar.people.server), parameters=MODEL)
    message = opening.to_bytes(identity=liar.people.server)
    liar.endpoints["c0"].handle("keys", message)
    with pytest.raises(ProtocolError, match="is over"):
        twin.handle("keys", message)


def test_two_processes_of_one_client_do_not_sign_two_agreements(tmp_path: Path) -> None:
    """Two rounds, both sessions open: whichever signs first is the only one."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    one, server, _ = liar.vectors(liar.plan(EIGHT))
    kept = liar.endpoints
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    two, second, _ = liar.vectors(liar.plan(EIGHT, round=2), far(2))
    link = liar.link(two, second, {0: (EIGHT, ())})
    assert len(liar.signed(two, link, EIGHT)) == 8
    liar.endpoints = kept
    first = liar.link(one, server, {0: (EIGHT, ())})
    assert liar.signed(one, first, EIGHT) == {}
    assert all("does not follow" in liar.refusals[name] for name in EIGHT)


# Different and nearly equal models --------------------------------------------------------------------------------------


def test_a_model_of_its_own_for_one_client_is_noticed_before_anybody_trains() -> None:
    """Seven get a model whose units are dead, so that the sum of eight is the update of the eighth."""
    liar = Liar(EIGHT, ClientPolicy(privacy=8))
    dead = {"w": np.full((2, 3), -1e6)}
    plan = bound(liar.plan(EIGHT), dead)
    for name in EIGHT:
        model = MODEL if name == "c7" else dead
        opening = RoundMessage(session=plan_message(plan, identity=liar.people.server), parameters=model)
        liar.tell(name, "keys", opening.to_bytes(identity=liar.people.server))
    assert set(liar.refusals) == {"c7"}
    assert "another model than this client has" in liar.refusals["c7"]
    assert all(site.trained == [] for site in liar.sites.values())


def test_two_plans_for_two_models_do_not_read_each_others_shares() -> None:
    """Each client gets the plan that fits its model: the plans differ, and so do all keys that follow from them."""
    liar = Liar(EIGHT, ClientPolicy(privacy=8))
    with pytest.raises(AssertionError):
        assert liar.open(liar.plan(EIGHT), models=lambda name: far(1 if name == "c7" else 0)(name))
    assert all(site.trained == [] for site in liar.sites.values())


@pytest.mark.parametrize("step", [5e-324, 1e-12, 1e-3])
def test_a_model_that_is_nearly_one_that_was_answered_counts_as_the_same(step: float) -> None:
    """One bit makes a new fingerprint, and nearly the same local model."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    near = {"w": np.array(MODEL["w"])}
    near["w"][0, 0] = step
    trained = {name: list(site.trained) for name, site in liar.sites.items()}
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: near) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])
    assert {name: list(site.trained) for name, site in liar.sites.items()} == trained, "refused before anybody trained"
    assert set(liar.open(liar.plan(EIGHT, round=3), models=lambda name: near)) == set(EIGHT), "the same sum again"


def test_a_model_that_differs_only_where_it_does_not_matter_counts_as_the_same() -> None:
    """A column that no site has data for is moved far away: the model is another one, the update is the same."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    for site in liar.sites.values():
        site.eyes = np.array([1.0, 1.0, 0.0])
    assert liar.open(liar.plan(EIGHT))
    moved = {"w": MODEL["w"] + np.array([0.0, 0.0, 500.0])}
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: moved) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


def test_a_near_model_is_known_to_a_client_that_restarted_and_in_another_run(tmp_path: Path) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4), folder=tmp_path)
    assert liar.open(liar.plan(EIGHT))
    liar.endpoints = {name: liar.endpoint(name) for name in EIGHT}
    near = {"w": MODEL["w"] + 1e-9}
    assert liar.open(liar.plan(EIGHT[1:], run="another"), models=lambda name: near) == {}
    assert all("mix only c0" in liar.refusals[name] for name in EIGHT[1:])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_hides_no_near_one(value: float) -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    strange = {"w": np.array(MODEL["w"])}
    strange["w"][1, 2] = value
    assert liar.open(liar.plan(EIGHT[1:], round=2), models=lambda name: strange) == {}
    assert liar.log[1:] == [], "nobody has signed anything about it"


def test_a_small_update_in_between_does_not_widen_what_is_near() -> None:
    """The server first sends a model from which nobody learns anything, so that the last update is nothing."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    for site in liar.sites.values():
        site.train = lambda parameters, *, round: TrainedModel(parameters=dict(parameters), samples=1)  # type: ignore[method-assign]
    assert liar.open(liar.plan(EIGHT, round=2), models=far(5))
    near = {"w": MODEL["w"] + 1e-9}
    assert liar.open(liar.plan(EIGHT[1:], round=3), models=lambda name: near) == {}


# What is needed to start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [None, ClientPolicy(), ClientPolicy(privacy=2), ClientPolicy(privacy=3, colluders=2)]
)
def test_a_client_with_an_identity_and_no_promise_does_not_start(policy: ClientPolicy | None) -> None:
    """The pairs ab, bc, ac give all three models: without a promise of its own a client would join in."""
    people = Consortium.of("abc")
    with pytest.raises(SpecError, match=r"Write a policy\.toml with privacy"):
        ClientEndpoint("a", Site("a"), policy=policy, credentials=people.of_client("a"))


def test_terms_that_promise_enough_are_as_good_as_a_policy() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    terms = replace(RunTerms.of(liar.plan(EIGHT)), privacy=4, colluders=1)
    liar = Liar(EIGHT, ClientPolicy(colluders=0), terms=terms)
    assert liar.open(liar.plan(EIGHT[:3])) == {}
    assert set(liar.open(liar.plan(EIGHT, round=2))) == set(EIGHT)


def test_pairs_are_refused() -> None:
    liar = Liar(("a", "b", "c"), ClientPolicy(privacy=3))
    assert liar.open(liar.plan("ab", "bc", "ac")) == {}
    assert liar.open(liar.plan("abc", round=2)) == {"a": (0,), "b": (0,), "c": (0,)}


def test_the_design_of_the_terms_holds_under_every_purpose() -> None:
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, CAREFUL)
    rows = [names[:5], names[5:10], names[10:]]
    terms = RunTerms.of(liar.plan(*rows), design=True)
    liar = Liar(names, CAREFUL, terms=terms)
    others = [names[:6], names[6:]]
    for purpose in ("test", "training", "weiszfeld-0", "anything"):
        assert liar.open(liar.plan(*others, purpose=purpose, round=1)) == {}
        assert all("the design changed" in reason for reason in liar.refusals.values())
    assert set(liar.open(liar.plan(*rows, round=2))) == set(names)


# The disclosed share ----------------------------------------------------------------------------------------------------

PARTITION = (EIGHT[:4], EIGHT[4:])
"""Two groups of four: a share of one seventh."""


def crossed(names: Sequence[str]) -> list[list[str]]:
    """Two more groups of four across the partition: r stays 2 or more, and each row tells more about everybody."""
    return [[names[j] for j in (0, 1, 4, 5)], [names[j] for j in (0, 2, 4, 6)]]


def test_more_groups_than_the_share_allows_are_refused_although_r_is_kept() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=2, colluders=0, largest_share=0.2), colluders=0)
    assert liar.open(liar.plan(*PARTITION, *crossed(EIGHT))) == {}
    assert all("this client's largest_share is 0.2" in reason for reason in liar.refusals.values())
    assert set(liar.refusals) == set(EIGHT)
    assert set(liar.open(liar.plan(*PARTITION, round=2))) == set(EIGHT)


def test_further_groups_about_the_same_model_are_added_to_the_share() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=2, colluders=0, largest_share=0.2), colluders=0)
    assert set(liar.open(liar.plan(*PARTITION))) == set(EIGHT)
    for change in ({"round": 2}, {"run": "another"}, {"purpose": "more"}):
        assert liar.open(liar.plan(*crossed(EIGHT), **change)) == {}
    assert liar.open(liar.plan(*crossed(EIGHT), round=3), models=far(1)), "another model is another account"


def test_invented_dropouts_do_not_raise_the_share_in_the_agreement() -> None:
    """The plan keeps the share; the members that the server says are alive do not."""
    liar = Liar(EIGHT, ClientPolicy(privacy=3, colluders=0, largest_share=0.2), colluders=0)
    plan = liar.plan(EIGHT, EIGHT)
    lists = {0: (EIGHT, ()), 1: (EIGHT[:5], EIGHT[5:])}
    assert liar.open(plan, lists) == {}
    assert any("largest_share" in reason for reason in liar.refusals.values())


def test_the_share_counts_what_colluders_know() -> None:
    """The partition tells a seventh to the server alone, and more with one of its members."""
    liar = Liar(EIGHT, ClientPolicy(privacy=3, colluders=1, largest_share=0.15), colluders=1)
    assert liar.open(liar.plan(*PARTITION)) == {}
    assert all("and 1 colluders" in reason for reason in liar.refusals.values())


def test_a_share_that_the_terms_promise_is_kept_by_every_client() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=3))
    terms = replace(RunTerms.of(liar.plan(*PARTITION)), privacy=3, largest_share=0.1)
    liar = Liar(EIGHT, ClientPolicy(privacy=3), terms=terms)
    assert liar.open(liar.plan(*PARTITION)) == {}
    assert set(liar.open(liar.plan(EIGHT, round=2))) == set(EIGHT)


# One colluding client ---------------------------------------------------------------------------------------------------


def test_the_careful_settings_of_the_guide_work_in_a_real_round() -> None:
    """Two colluders in groups of odd and even size, with the thresholds that the product proposes."""
    names = tuple(f"c{number:02d}" for number in range(15))
    liar = Liar(names, replace(CAREFUL, colluders=2, privacy=5, minimum_group_size=5), colluders=2)
    assert set(liar.open(liar.plan(names[:5], names[5:11], names[11:] + names[:1]))) == set(names)


def test_a_plan_that_allows_for_fewer_colluders_than_the_policy_is_refused() -> None:
    liar = Liar(EIGHT, replace(CAREFUL, colluders=2), colluders=1)
    assert liar.open(liar.plan(EIGHT)) == {}
    assert all("allows for 1 colluders" in reason for reason in liar.refusals.values())


@pytest.mark.parametrize("size", [5, 7, 9])
def test_one_colluder_in_a_group_of_odd_size_does_not_open_two_lists(size: int) -> None:
    """The default threshold is above half with the colluder left out."""
    names = tuple(f"c{number}" for number in range(size))
    liar = Liar(names, ClientPolicy(privacy=3))
    plan, server, _ = liar.vectors(liar.plan(names))
    everybody, less = (liar.link(plan, server, {0: lists}) for lists in ((names, ()), (names[:-1], names[-1:])))
    half = (size - 1) // 2
    first, second = liar.signed(plan, everybody, names[1 : 1 + half]), liar.signed(plan, less, names[1 + half : -1])
    for link, some in ((everybody, first), (less, second)):
        some["c0"] = link.sign(liar.people.clients["c0"])
    released = [
        {name for name in liar.shares(plan, link, some) if name != "c0"}
        for link, some in ((everybody, first), (less, second))
    ]
    assert not all(released)


# The account over all runs ----------------------------------------------------------------------------------------------


def test_a_limit_over_all_runs_is_kept_whatever_the_model_and_the_run() -> None:
    """One absence exhausts it, as the threat model says: it is for consortia that would rather stop."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4, privacy_over_runs=2))
    assert liar.open(liar.plan(EIGHT), models=far(1))
    assert liar.open(liar.plan(EIGHT[1:], run="another"), models=far(2)) == {}
    assert all("all models and runs" in liar.refusals[name] for name in EIGHT[1:])
    assert set(liar.open(liar.plan(EIGHT, run="third"), models=far(3))) == set(EIGHT)


def test_weights_and_not_numbers_of_groups_decide_what_is_mixed() -> None:
    """The same eight clients twice, with the weight of one changed in between: the difference is its update."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    assert liar.open(liar.plan(EIGHT))
    heavier = liar.plan(EIGHT, round=2, run="another", weights={**dict.fromkeys(EIGHT, 1), "c7": 2})
    assert liar.open(heavier) == {}
    assert all("mix only c7" in liar.refusals[name] for name in EIGHT)


def test_nobody_joins_a_sum_in_which_it_weighs_nearly_everything() -> None:
    """The plan has its true number of samples, and one sample of everybody else: the sum is its update, times 5,000."""
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    weights = {**dict.fromkeys(EIGHT, 1), "c7": 5000}
    encoding = FixedPoint(clip=8.0, fraction_bits=16, ring_bits=64)
    _, _, replies = liar.vectors(liar.plan(EIGHT, weights=weights, encoding=encoding))
    assert "c7" not in replies
    assert "more than 20 times the mean of its peers" in liar.refusals["c7"]


def test_a_weight_that_changes_within_one_agreement_is_noticed() -> None:
    liar = Liar(EIGHT, ClientPolicy(privacy=4))
    plan, server, _ = liar.vectors(liar.plan(EIGHT))
    link = liar.link(plan, server, {0: (EIGHT, ())}, weights={**dict.fromkeys(EIGHT, 1), "c7": 2})
    assert liar.signed(plan, link, EIGHT) == {}
    assert all("other weights than the plan" in reason for reason in liar.refusals.values())
