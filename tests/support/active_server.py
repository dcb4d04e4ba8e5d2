"""A server that lies, as a state machine: it drops, reorders, replays, splits, invents, hides and rewinds at will.

It has the keys of c colluding clients, and honest clients restart or run as two processes whenever it helps. The invariant:
of everything that it can unmask by then, no combination mixes fewer than r - c honest clients about one global model, nearly
equal ones counted as one. What "can unmask" means is `LyingServer.components`; at the end of a schedule the secrets are
really combined, and the sums compared with the vectors that were put in.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fedgt.errors import FedGTError
from fedgt.secagg import ClientPolicy, Identity, Link
from fedgt.secagg.agreement import links_to_json
from lying_server import DEAD, Attempt, LyingServer, least_mixed, model
from secagg_lab import Consortium
from whole_vector import client_vector

NAMES = tuple("abcdefg")
SAMPLES = {name: 1 + number % 3 for number, name in enumerate(NAMES)}
IDENTITIES = {name: Identity.generate(name) for name in NAMES}
SERVER = Identity.generate("server")
MEMORY = Path("/dev/shm")

some = st.sets(st.sampled_from(NAMES))
nobody = st.just(frozenset[str]())
few = st.one_of(nobody, nobody, st.sets(st.sampled_from(NAMES), min_size=1, max_size=2))
hardly = st.one_of(*[nobody] * 7, st.sets(st.sampled_from(NAMES), min_size=1, max_size=2))
"""Members of a group are left out often; what mostly spoils an attempt is rare."""


class ActiveServer(RuleBasedStateMachine):
    """Seven clients at most, one or two groups a plan, two far models and what is near them."""

    @initialize(
        clients=st.integers(5, 7),
        colluders=st.integers(0, 2),
        more=st.integers(0, 1),
        kept=st.booleans(),
        honest=st.booleans(),
    )
    def begin(self, clients: int, colluders: int, more: int, kept: bool, honest: bool) -> None:
        names = NAMES[:clients]
        # Without colluders two clients are mixed in any case; three is the least that can be broken between two sums.
        promised = max(colluders + 2, 3) + more
        self.honest_mixed = promised - colluders
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None)) if kept else None
        self.server = LyingServer(
            names,
            ClientPolicy(privacy=promised, colluders=colluders),
            bad=names[clients - colluders :],
            folder=self.folder,
            samples=SAMPLES,
            people=Consortium(server=SERVER, clients={name: IDENTITIES[name] for name in names}),
        )
        self.links: list[tuple[Attempt, Link]] = []
        self.copies: list[tuple[str, bytes]] = []
        self.number = 1
        if honest:
            attempt = self.server.begin(self.server.plan(names, run="one-equal"), model(1))
            self.server.share(attempt)
            self.server.mask(attempt)
            self.open(attempt, [set()], None, None, 0, goes_on=True)

    # What a server can do -----------------------------------------------------------------------------------------------

    @rule(
        left_out=st.lists(few, min_size=1, max_size=2),
        kind=st.sampled_from([1.0, 1.0, 1.0, 2.0, DEAD / 100]),
        shift=st.sampled_from([0.0, 0.0, 1e-9]),
        run=st.sampled_from(["one", "two"]),
        again=st.booleans(),
        weights=st.sampled_from(["equal", "equal", "samples"]),
        task=st.sampled_from(["mean", "mean", "weiszfeld"]),
        smoothing=st.sampled_from([1e-6, 1e-6, 1.0, 1e3]),
        ahead=st.booleans(),
        process=st.sampled_from([0, 0, 1]),
        silent=hardly,
        lied_to=hardly,
        lie=st.sampled_from([1.0, DEAD / 100]),
        step=st.sampled_from(["keys", "vectors", "all", "all", "all"]),
        dropped=st.lists(few, min_size=2, max_size=2),
    )
    def plan(
        self,
        left_out: Sequence[set[str]],
        kind: float,
        shift: float,
        run: str,
        again: bool,
        weights: str,
        task: str,
        smoothing: float,
        ahead: bool,
        process: int,
        silent: set[str],
        lied_to: set[str],
        lie: float,
        step: str,
        dropped: Sequence[set[str]],
    ) -> None:
        """A plan goes out, perhaps about another model to some; mostly vectors, signatures and shares come back."""
        server = self.server
        groups = [tuple(name for name in server.names if name not in out) for out in left_out]
        groups = [group for group in groups if len(group) > 1]
        if not groups:
            return
        self.number += not again
        changes: dict[str, Any] = {"task": task} | ({"smoothing": smoothing} if task == "weiszfeld" else {})
        plan = server.plan(
            *groups,
            run=f"{run}-{weights}",
            round=max(self.number, 1),
            purpose=f"{task}-{len(server.attempts)}" if again else "test",
            weights={name: SAMPLES[name] if weights == "samples" else 1 for name in server.names},
            **changes,
        )
        sent, other = model(kind, shift), model(lie)
        attempt = server.begin(
            plan,
            sent,
            others=lambda name: other if name in lied_to else sent,
            silent=silent,
            process=process if self.folder is not None else 0,
            ahead=ahead,
        )
        server.share(attempt)
        if step != "keys":
            server.mask(attempt)
        if step == "all" and attempt.vectors:
            self.open(attempt, dropped, None, None, 0, goes_on=True)

    @rule(
        out=few,
        dropped=few,
        shift=st.sampled_from([0.0, 1e-9]),
        how=st.sampled_from([{}, {}, {"task": "weiszfeld"}, {"task": "weiszfeld", "smoothing": 1e3}]),
        run=st.sampled_from(["one-equal", "two-equal"]),
        process=st.integers(0, 1),
        by=st.one_of(st.none(), st.none(), some),
    )
    def again(
        self,
        out: set[str],
        dropped: set[str],
        shift: float,
        how: dict[str, Any],
        run: str,
        process: int,
        by: set[str] | None,
    ) -> None:
        """One sum about the first model, or nearly it, over everybody but a few, all the way."""
        self.number += 1
        server = self.server
        group = [name for name in server.names if name not in out]
        plan = server.plan(group, run=run, round=self.number, **how)
        attempt = server.begin(plan, model(1, shift), process=process if self.folder is not None else 0)
        server.share(attempt)
        server.mask(attempt)
        self.open(attempt, [dropped], None, by, 0, goes_on=True)

    @rule(
        out=st.lists(few, min_size=2, max_size=2),
        dropped=st.lists(few, min_size=2, max_size=2),
        kind=st.sampled_from([1.0, 2.0]),
        task=st.sampled_from(["mean", "weiszfeld"]),
        ahead=st.booleans(),
        lied_to=hardly,
    )
    def pair(
        self,
        out: Sequence[set[str]],
        dropped: Sequence[set[str]],
        kind: float,
        task: str,
        ahead: bool,
        lied_to: set[str],
    ) -> None:
        """Two groups of one plan that hardly differ, or hardly will when some are said to have dropped."""
        self.number += 1
        server = self.server
        groups = [[name for name in server.names if name not in some_out] for some_out in out]
        plan = server.plan(*groups, run="one-equal", round=self.number, task=task)
        sent, dead = model(kind), model(DEAD / 100)
        attempt = server.begin(plan, sent, ahead=ahead, others=lambda name: dead if name in lied_to else sent)
        server.share(attempt)
        server.mask(attempt)
        self.open(attempt, dropped, None, None, 0, goes_on=True)

    @rule(
        out=st.lists(few, min_size=2, max_size=2),
        later=st.lists(few, min_size=1, max_size=2),
        dropped=st.lists(few, min_size=4, max_size=4),
        lost=hardly,
        shift=st.sampled_from([0.0, 0.0, 1e-9]),
        process=st.integers(0, 1),
        ahead=st.booleans(),
        back=st.integers(0, 2),
    )
    def stages(
        self,
        out: Sequence[set[str]],
        later: Sequence[set[str]],
        dropped: Sequence[set[str]],
        lost: set[str],
        shift: float,
        process: int,
        ahead: bool,
        back: int,
    ) -> None:
        """A plan in two stages, in each of which some are said to have dropped; the second may come after other plans."""
        self.number += 1
        server = self.server
        first, second = (
            [[name for name in server.names if name not in some_out] for some_out in outs] for outs in (out, later)
        )
        if out[0] & out[1]:
            first = [list(server.names)]
        plan = server.plan(*first, *second, run="one-equal", round=self.number, stages=(len(first), len(second)))
        attempt = server.begin(plan, model(1, shift), process=process if self.folder is not None else 0, ahead=ahead)
        server.share(attempt)
        server.mask(attempt)
        if not attempt.vectors:
            return
        self.open(attempt, dropped, None, None, 0, goes_on=True)
        for old in (attempt, self.attempt(back)):
            if old.stage == 0 and len(old.plan.stages) > 1:
                server.further(old, silent=lost)
                server.share(old)
                server.mask(old)
                self.open(old, dropped[::-1], None, None, 0, goes_on=True)

    @precondition(lambda self: self.server.attempts)
    @rule(back=st.integers(0, 3), silent=hardly, hidden=few, from_whom=hardly, rewound=st.integers(0, 2))
    def vectors(self, back: int, silent: set[str], hidden: set[str], from_whom: set[str], rewound: int) -> None:
        """Vectors of a plan that is still open; some clients are told of fewer peers, or of a shorter record."""
        attempt = self.attempt(back)
        lied = dict.fromkeys(from_whom, hidden)
        server = self.server

        def missed(name: str) -> bytes:
            known = list(server.known.values())
            return links_to_json(known[: len(known) - rewound])

        server.mask(attempt, silent=silent, hidden=lied, missed=missed if rewound else None)

    @precondition(lambda self: any(attempt.vectors for attempt in self.server.attempts))
    @rule(
        back=st.integers(0, 3),
        dropped=st.lists(few, min_size=2, max_size=2),
        only=st.sampled_from([None, None, 0, 1]),
        by=st.one_of(st.none(), st.none(), some),
        rewound=st.sampled_from([0, 0, 0, 1, 2]),
        goes_on=st.sampled_from([True, True, True, False]),
    )
    def agree(
        self, back: int, dropped: Sequence[set[str]], only: int | None, by: set[str] | None, rewound: int, goes_on: bool
    ) -> None:
        """An agreement with invented dropouts, about all groups or one, after the head or an older link; then the shares."""
        self.open(self.attempt(back), dropped, only, by, rewound, goes_on=goes_on)

    def open(
        self,
        attempt: Attempt,
        dropped: Sequence[set[str]],
        only: int | None,
        by: set[str] | None,
        rewound: int,
        *,
        goes_on: bool,
    ) -> None:
        link = self.lists(attempt, dropped, only, rewound)
        if link is None:
            return
        signatures = self.server.sign(attempt, link, by)
        self.links.append((attempt, link))
        if goes_on and set(signatures) - set(self.server.bad):
            self.server.head = link
        self.server.unmask(attempt, link)
        self.check()

    @precondition(lambda self: any(attempt.vectors for attempt in self.server.attempts))
    @rule(
        back=st.integers(0, 3),
        dropped=st.lists(few, min_size=4, max_size=4),
        single=st.booleans(),
        first=st.sets(st.sampled_from(NAMES), min_size=2, max_size=4),
    )
    def fork(self, back: int, dropped: Sequence[set[str]], single: bool, first: set[str]) -> None:
        """Two agreements of one number: some sign the first, the rest the second; both are to be opened."""
        attempt = self.attempt(back)
        pair = [self.lists(attempt, dropped[2 * n : 2 * n + 2], n if single else None, 0) for n in (0, 1)]
        rest = set(self.server.names) - first
        for link, by in zip(pair, (first, rest), strict=True):
            if link is not None:
                self.server.sign(attempt, link, by)
                self.links.append((attempt, link))
        for link in pair:
            if link is not None:
                self.server.head = link
                self.server.unmask(attempt, link)
        self.check()

    @precondition(lambda self: self.links)
    @rule(which=st.integers(0, 5), other=st.integers(0, 5))
    def open_later(self, which: int, other: int) -> None:
        """Shares are asked for again, with signatures that were given to another agreement."""
        attempt, link = self.links[-1 - which % len(self.links)]
        _, strange = self.links[-1 - other % len(self.links)]
        signatures = {**self.server.known[strange.digest][1], **self.server.known[link.digest][1]}
        self.server.unmask(attempt, link, signatures)
        self.check()

    @rule(name=st.sampled_from(NAMES), all_of_them=st.booleans())
    def restart(self, name: str, all_of_them: bool) -> None:
        """A process ends and another goes on with its suspended state; with a journal it may also begin anew."""
        for key in list(self.server.endpoints):
            if all_of_them or key[0] == name:
                state = self.server.endpoints[key].suspend()
                self.server.endpoints[key] = self.server.fresh(key[0])
                self.server.endpoints[key].resume(state)
                self.copies.append((key[0], state))

    @precondition(lambda self: self.folder is not None)
    @rule(name=st.sampled_from(NAMES))
    def crash(self, name: str) -> None:
        """All processes of a client die; only its files are left."""
        for key in [key for key in self.server.endpoints if key[0] == name]:
            del self.server.endpoints[key]

    @precondition(lambda self: self.folder is not None and self.copies)
    @rule(which=st.integers(0, 5), process=st.integers(0, 1))
    def old_state(self, which: int, process: int) -> None:
        """A suspended state that was used is handed out once more."""
        name, state = self.copies[-1 - which % len(self.copies)]
        other = self.server.fresh(name)
        try:
            other.resume(state)
        except FedGTError:
            return
        self.server.endpoints[name, process] = other

    # What must hold -----------------------------------------------------------------------------------------------------

    def attempt(self, back: int) -> Attempt:
        """One of the latest plans, those with vectors first."""
        tried = sorted(self.server.attempts, key=lambda one: bool(one.vectors))
        return tried[-1 - back % len(tried)]

    def lists(self, attempt: Attempt, dropped: Sequence[set[str]], only: int | None, rewound: int) -> Link | None:
        """A link about the true sharers, of which some are said to have dropped."""
        lists = {}
        for index, (alive, gone) in self.server.truth(attempt).items():
            if only is not None and index != only:
                continue
            stay = [name for name in alive if name not in dropped[index % len(dropped)]]
            lists[index] = (stay, [*gone, *(set(alive) - set(stay))])
        before = self.server.head
        for _ in range(rewound):
            before = self.server.known[before.previous][0] if before and before.previous in self.server.known else None
        try:
            return self.server.link(attempt, lists, **({} if before is self.server.head else self.after(before)))
        except FedGTError:
            return None

    def after(self, before: Link | None) -> Mapping[str, Any]:
        from fedgt.secagg.agreement import chain_of

        if before is None:
            return {"number": 1, "previous": chain_of(self.server.registry)}
        return {"after": before}

    def check(self) -> None:
        mixed = least_mixed(self.server.revealed())
        assert mixed is None or mixed >= self.honest_mixed, f"{mixed} honest clients, promised {self.honest_mixed}"

    def teardown(self) -> None:
        """The sums are really there: whatever counts as revealed is unmasked, and is what its members put in."""
        try:
            for attempt in self.server.attempts if hasattr(self, "server") else ():
                for group in range(len(attempt.plan.groups)):
                    for members in self.server.components(attempt, group):
                        found = self.server.unmasked(attempt, group, members)
                        np.testing.assert_array_equal(found, sum_of(self.server, attempt, group, members))
        finally:
            folder: Path | None = getattr(self, "folder", None)
            if folder is not None:
                shutil.rmtree(folder)


def sum_of(server: LyingServer, attempt: Attempt, group: int, members: Sequence[int]) -> Any:
    """The sum of the plain vectors of these members, from what they trained."""
    total = np.zeros(attempt.plan.length, dtype=attempt.plan.encoding.dtype)
    for position in members:
        name = attempt.plan.groups[group][position]
        base = {"w": np.full(2, 100.0 * server.trained(attempt, name))}
        if server.trained(attempt, name) == attempt.kind:
            base = {key: np.asarray(value) for key, value in attempt.sent.items()}
        own = {"w": (base["w"] + server.data[name].update(server.trained(attempt, name))) - base["w"]}
        np.add(total, client_vector(attempt.plan, name, own, attempt.center), out=total)
    return total
