"""A federation from its first round to its last: the one loop, whatever carries the messages and whoever trains.

    run = FederationRun(clients, privacy=4, samples=samples, validation=validation)
    for step in run.rounds(parameters):
        print(step.round, step.purpose, step.excluded)

Everything that can be checked is checked before the first message. A run that may not go on raises `RunHaltedError`; it
never goes on with everybody.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from fedgt.decode import UNDECIDABLE
from fedgt.design import Design, default_design
from fedgt.engine import MeetingTransport, TakesSums, Transport, secure_sums
from fedgt.engine.endpoint import Client
from fedgt.errors import RunHaltedError, SpecError
from fedgt.federation.checks import check_plan, check_test
from fedgt.federation.further import further_design
from fedgt.federation.local import LocalClients
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.rfa import rfa_round
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings, SumSettings, Weighting
from fedgt.federation.sums import RoundResult
from fedgt.federation.verdicts import Exclusion, Verdict
from fedgt.grouping import Grouping, assign
from fedgt.privacy import Ledger
from fedgt.secagg import AgreementLog, Credentials, PrekeyRequest
from fedgt.types import FloatArray, Parameters, SetEvidence, require_model

_log = logging.getLogger(__name__)

_ONE_BATCH = ("next-round", "negative-groups")
_SEATS, _ROWS = 0, 5  # independent streams of the seed: who sits where, and further rows

Purpose = Literal["training", "test", "weiszfeld"]

NextModel: TypeAlias = Callable[[Parameters, Parameters], Parameters]
"""(global model of the round, mean that the sums give) -> the next global model; a server optimiser, for instance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunState:
    """Everything that travels from one round to the next. Whoever has it can go on with the run.

    Attributes:
        parameters: The global model.
        ledger: What was opened, and what may still be.
        round: The last finished round; 0 before the first.
        excluded: Who is left out from now on.
        verdicts: Client -> what was decided about it last.
        evidence: Graded evidence of all tests so far.
        heard: Client -> in how many sums of that evidence it is.
        revealed: float64[clients] each, the real rows of all test sums that were opened.
        tests: How many test rounds were held.
        next_test: The round of the next test; 0 where none is due.
        grouping: Who shares a group in it.
        decided: What follows from the tests so far if no further one can tell; None where they could not either.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> _ = list(run.rounds({"weight": np.zeros(2)}))
        >>> run.state.round, run.state.ledger.account().strict
        (1, 4)
    """

    parameters: Parameters
    ledger: Ledger
    round: int = 0
    excluded: frozenset[str] = frozenset()
    verdicts: Mapping[str, Verdict] = field(default_factory=lambda: MappingProxyType({}))
    evidence: tuple[SetEvidence, ...] = ()
    heard: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    revealed: tuple[FloatArray, ...] = ()
    tests: int = 0
    next_test: int = 0
    grouping: Grouping | None = None
    decided: Exclusion | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coming:
    """A round that is about to be held.

    Attributes:
        round: Its number, from 1.
        purpose: `training`, `test` or `weiszfeld`.
        members: The clients that take part.
        parameters: The global model that they start from.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> run.begin({"weight": np.zeros(2)})
        >>> coming = run.coming()
        >>> coming.round, coming.purpose, coming.members
        (1, 'training', ('ada', 'bob', 'cleo', 'dan'))
    """

    round: int
    purpose: Purpose
    members: tuple[str, ...]
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A finished round.

    Attributes:
        round: Its number, from 1.
        purpose: `training`, `test` or `weiszfeld`.
        members: The clients that took part.
        parameters: The global model after it.
        result: Every aggregate that was asked for, bytes and warnings.
        screening: The test with its evidence and decision; None in another round.
        verdicts: What was newly decided, about clients that were still there.
        excluded: Everybody who is left out from now on.
        warnings: What must not be overlooked about the round.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=1)
        >>> (step,) = run.rounds({"weight": np.zeros(2)})
        >>> step.members, step.screening is None, step.excluded
        (('ada', 'bob', 'cleo', 'dan'), True, ())
    """

    round: int
    purpose: Purpose
    members: tuple[str, ...]
    parameters: Parameters
    result: RoundResult
    screening: ScreeningRound | None
    verdicts: tuple[Verdict, ...]
    excluded: tuple[str, ...]
    warnings: tuple[str, ...]


class FederationRun:
    """Owns a run: who takes part, what is promised, when groups are tested, what is known so far, and who is out.

    Args:
        clients: The transport that reaches the clients; or the clients themselves, name -> `Client`, in this process.
        privacy: The promise r: no combination of what is opened about one set of local models mixes fewer clients.
        samples: Client -> its number of samples, public: its weight in every sum.
        validation: The server's validation set; None holds no test, and nobody is looked for.
        grouping: Who shares a group in the first test; or a design, whose seats are drawn; or None for the default design
            for so many clients.
        rounds: How many.
        test_rounds: The rounds of the tests, all with the same groups, where they are agreed beforehand. Otherwise
            `screen.round` is the first, and a further one with rows of its own follows at once while clients stay undecided.
        screen: When and how groups are tested.
        decode: How suspects are named, and the policies.
        weighting: `samples` (FedAvg) or `equal`, of all sums.
        sums: Clip, fixed point and timeout.
        rfa: Take the geometric median of the updates instead of their mean: the baseline, which names nobody.
        excluded: Who is left out from the beginning.
        ledger: The account of what was opened before; None is an empty one.
        present: Round -> the clients that are there; None asks the transport, if it is a `MeetingTransport`, else means all.
        next_model: What becomes of the mean, where there is one; None takes it as it is.
        credentials: The server's identity and the clients' keys; None is ANONYMOUS MODE, for simulations.
        agreements: What the clients have signed so far, with credentials; in a folder, so that the next run goes on with it.
        inputs: Name -> SHA-256 of what else clients train with; with credentials they verify it.
        name: Of the run, part of every key; a new one for every run if not given.
        seed: Of the seats, of the rows of further tests, and of the clusters' starting positions.
        take_sums: The protocol. Anything but `secure_sums` is for records and experiments in one process.

    Attributes:
        federation: Who takes part and how sums are taken.
        grouping: Who shares a group in the first test; None without tests.

    Raises:
        SpecError: If something does not fit, the groups cannot keep the promise for instance. Nobody has been asked then.
        DesignError: If there is no default design for so many clients.

    Examples:
        >>> import numpy as np
        >>> from fedgt import FederationRun, TrainedModel
        >>> class Site:
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + 1.0}, samples=10)
        >>> sites = {name: Site() for name in ("ada", "bob", "cleo", "dan")}
        >>> run = FederationRun(sites, privacy=4, samples=dict.fromkeys(sites, 10), rounds=2)  # no validation set: no test
        >>> for step in run.rounds({"weight": np.zeros(2)}):
        ...     print(step.round, step.purpose, step.parameters["weight"].round(3).tolist())
        1 training [1.0, 1.0]
        2 training [2.0, 2.0]
    """

    def __init__(
        self,
        clients: Transport | Mapping[str, Client],
        *,
        privacy: int,
        samples: Mapping[str, int],
        validation: Validation | None = None,
        grouping: Grouping | Design | None = None,
        rounds: int = 10,
        test_rounds: Collection[int] = (),
        screen: ScreenSettings | None = None,
        decode: DecodeSettings | None = None,
        weighting: Weighting = "samples",
        sums: SumSettings | None = None,
        rfa: RfaSettings | None = None,
        excluded: Collection[str] = (),
        ledger: Ledger | None = None,
        present: Callable[[int], Collection[str]] | None = None,
        next_model: NextModel | None = None,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
        inputs: Mapping[str, str] | None = None,
        name: str | None = None,
        seed: int = 0,
        take_sums: TakesSums = secure_sums,
    ) -> None:
        """Check, and ask nobody yet."""
        self.screen, self.decode = screen or ScreenSettings(), decode or DecodeSettings()
        self.rounds_planned, self.rfa, self.seed = rounds, rfa, seed
        self.validation = validation
        self.grouping: Grouping | None = None
        self._excluded, self._present, self._next_model = frozenset(excluded), present, next_model
        self.decode.require_for(self.screen)
        if rounds < 1:
            raise SpecError(f"{rounds} rounds; at least 1 is needed")
        if not all(1 <= number <= rounds for number in test_rounds):
            raise SpecError(f"test rounds {sorted(test_rounds)} of {rounds} rounds: numbers from 1 are needed")
        self._agreed_tests = tuple(sorted(set(test_rounds)))
        if unknown := sorted(self._excluded - set(samples)):
            raise SpecError(f"excluded from the beginning, but no client: {', '.join(unknown)}")
        if validation is None and grouping is not None:
            raise SpecError("groups are tested with a validation set: give one, or no groups for a run without tests")
        if validation is not None and rfa is not None:
            raise SpecError("RFA names nobody: give no validation set with it, or no rfa")
        one_batch = not isinstance(clients, Mapping) and isinstance(clients, MeetingTransport)
        if one_batch and (rfa is not None or self.decode.after_test not in _ONE_BATCH):
            raise SpecError(
                "over a network each local model gets one batch of sums, because no client keeps it: RFA and after_test = "
                f'"{self.decode.after_test}" need more; take after_test = "next-round"'
            )
        self._local: LocalClients | None = None
        if isinstance(clients, Mapping):
            self._local = LocalClients(clients, privacy)
            clients = self._local.transport
        sums = sums or SumSettings()
        account = Ledger(
            clients=tuple(samples), promised=privacy, largest_share=sums.largest_share, colluders=sums.colluders
        )
        if ledger is not None:
            account.merge(ledger)  # refused if it is about other clients or promises
        self.federation = Federation(
            run=name or f"run-{secrets.token_hex(8)}",
            transport=clients,
            ledger=account if ledger is None else ledger,
            samples=samples,
            weighting=weighting,
            sums=sums,
            inputs=inputs or {},
            credentials=credentials,
            agreements=agreements,
            take_sums=take_sums,
        )
        self._has_account = ledger is not None
        self._state: RunState | None = None
        self._halted = ""
        if validation is not None:
            self.grouping = self._seated(grouping)
            check_plan(self.federation, self.grouping, self.screen, self.decode, rounds)

    def rounds(self, parameters: Parameters) -> Iterator[Step]:
        """Hold all rounds, beginning at these parameters; nothing goes on until the next step is asked for.

        Raises:
            RunHaltedError: If the run may not go on.
        """
        self.begin(parameters)
        while (coming := self.coming()) is not None:
            yield self.hold(coming)

    @property
    def state(self) -> RunState:
        """What travels between rounds.

        Raises:
            SpecError: If the run has not begun.
        """
        if self._state is None:
            raise SpecError("the run has not begun: call begin(parameters), or loop over rounds(parameters)")
        return self._state

    @property
    def kept(self) -> tuple[str, ...]:
        """Who goes on, sorted.

        Raises:
            RunHaltedError: If the run may not go on, with anybody.
        """
        if self._halted:
            raise RunHaltedError(self._halted)
        return tuple(sorted(set(self.federation.samples) - self.state.excluded))

    def begin(self, parameters: Parameters, *, after: int = 0) -> None:
        """Set the state before the first round.

        Args:
            parameters: The global model.
            after: The last round that is over, of a run that goes on.

        Raises:
            ShapeError: If the model is no dict of arrays, or labels or scores of the validation set do not have the form
                they need.
            SpecError: If the classification layer does not exist, or does not suit the groups; if a run goes on without the
                account of what was opened before.
        """
        require_model(parameters)
        if after and not self._has_account:
            raise SpecError(
                "a run that goes on needs the account of what was opened before: FederationRun(ledger=Ledger.kept_in(PATH, "
                "...)), with the same path from the first round"
            )
        tested = self.grouping is not None
        if self.grouping is not None and self.validation is not None:
            check_test(self.federation, parameters, self.grouping, self.validation, self.screen, further=False)
        self._state = RunState(
            parameters=parameters,
            ledger=self.federation.ledger,
            round=after,
            excluded=self._excluded,
            next_test=self._next_agreed(after) if self._agreed_tests or not tested else self.screen.round,
            grouping=self.grouping,
        )

    def coming(self) -> Coming | None:
        """The next round; None when all are over."""
        state = self.state
        number = state.round + 1
        if number > self.rounds_planned:
            return None
        there = frozenset(self._there(number, state))
        if unknown := sorted(there - set(self.federation.samples)):
            raise SpecError(f"present in round {number}, but no client of this run: {', '.join(unknown)}")
        return Coming(
            round=number,
            purpose="weiszfeld" if self.rfa is not None else "test" if number == state.next_test else "training",
            members=tuple(client for client in self.federation.samples if client in there - state.excluded),
            parameters=state.parameters,
        )

    def most_groups(self, number: int) -> int:
        """The most groups that the plan of a coming round may have, for keys that clients publish ahead; 0 after the last.

        Args:
            number: The next round, whose groups are known; or the one after it, which may be a further test.
        """
        state, tested = self.state, 0 if self.grouping is None else self.grouping.design.groups
        if number > self.rounds_planned:
            return 0
        if number == state.round + 1:
            return state.grouping.design.groups if number == state.next_test and state.grouping is not None else 1
        if self._agreed_tests:
            return tested if number in self._agreed_tests else 1
        if number == self.screen.round and not state.tests:
            return max(1, tested)
        if state.next_test != number - 1 or state.grouping is None or not self._may_test_again(state.tests + 1):
            return 1
        # New rows, or every row that was opened by then once more.
        return max(self.screen.more_groups, len(state.revealed) + state.grouping.design.groups)

    def hold(self, coming: Coming) -> Step:
        """Hold a round and go on to the state after it.

        Raises:
            RunHaltedError: If the run may not go on; its `step` is the round, which is on record.
            ClientsFailedError: If all clients of this process failed alike; the first error is its cause.
            FedGTError: If the round cannot be held. The state stays; what was opened is in the ledger.
        """
        if self._halted:
            raise RunHaltedError(self._halted)
        state = self.state
        self._ask_ahead(coming.round + 1)
        result, screening = self._round(coming, state)
        if self._local is not None and not result.secure_sums:
            self._local.require_some(coming.members, coming.round)
        parameters = result.parameters
        if self._next_model is not None and not _same(coming.parameters, parameters):
            parameters = self._next_model(coming.parameters, parameters)
        state = replace(state, round=coming.round, parameters=parameters)
        news: tuple[Verdict, ...] = ()
        if screening is not None:
            state, screening = self._after_test(state, screening)
            # Who was left out by an earlier test is not in this one: the verdict stays.
            news = tuple(v for v in screening.exclusion.verdicts if v.client not in state.excluded)
            state = replace(
                state,
                verdicts=MappingProxyType({**state.verdicts, **{v.client: v for v in news}}),
                excluded=state.excluded | set(screening.exclusion.excluded),
            )
            _log.info("round %d: %s", coming.round, screening.exclusion.reason)
        self._state = state
        step = Step(
            round=coming.round,
            purpose=coming.purpose,
            members=coming.members,
            parameters=parameters,
            result=result,
            screening=screening,
            verdicts=news,
            excluded=tuple(sorted(state.excluded)),
            warnings=() if screening is None else _told(screening, news),
        )
        if screening is not None:
            self._require_going_on(step, screening)
        return step

    def _there(self, number: int, state: RunState) -> Collection[str]:
        if self._present is not None:
            return self._present(number)
        transport = self.federation.transport
        if not isinstance(transport, MeetingTransport):
            return tuple(self.federation.samples)
        self._ask_ahead(number)
        return transport.meet(without=state.excluded)

    def _ask_ahead(self, number: int) -> None:
        """Have the clients asked for the keys of a coming round, over a transport that brings them ahead."""
        transport = self.federation.transport
        if isinstance(transport, MeetingTransport):
            groups = self.most_groups(number)
            run = self.federation.run
            transport.prekeys.request = PrekeyRequest(run=run, round=number, groups=groups) if groups else None

    def _seated(self, given: Grouping | Design | None) -> Grouping:
        if isinstance(given, Grouping):
            return given
        clients = tuple(self.federation.samples)
        design = given or default_design(len(clients), graded=self.screen.kind == "graded")
        return assign(design, clients, rng=np.random.default_rng([self.seed, _SEATS]))

    def _round(self, coming: Coming, state: RunState) -> tuple[RoundResult, ScreeningRound | None]:
        if self.rfa is not None:
            result = rfa_round(
                self.federation,
                coming.parameters,
                round=coming.round,
                members=coming.members,
                iterations=self.rfa.iterations,
                smoothing=self.rfa.smoothing,
            )
            return result, None
        if coming.purpose != "test" or state.grouping is None or self.validation is None:
            return training_round(self.federation, coming.parameters, round=coming.round, members=coming.members), None
        screening = screening_round(
            self.federation,
            coming.parameters,
            round=coming.round,
            grouping=state.grouping,
            present=coming.members,
            validation=self.validation,
            screen=self.screen,
            decoding=self.decode,
            earlier=state.evidence,
            heard=state.heard,
            before=state.decided,
            seed=self.seed,
            last=not self._next_agreed(coming.round)
            if self._agreed_tests
            else state.tests + 1 >= self.screen.most_rounds or coming.round >= self.rounds_planned,
        )
        return screening.result, screening

    def _after_test(self, state: RunState, screening: ScreeningRound) -> tuple[RunState, ScreeningRound]:
        """Add the evidence up and see whether another test follows; if none can, undecided clients are decided now."""
        evidence, heard = state.evidence, dict(state.heard)
        if screening.measured.evidence is not None:
            evidence = (*evidence, screening.measured.evidence)
            for client, count in screening.heard.items():
                heard[client] = heard.get(client, 0) + count
        state = replace(
            state,
            evidence=evidence,
            heard=MappingProxyType(heard),
            revealed=(*state.revealed, *_test_rows(screening)),
            tests=state.tests + 1,
            next_test=self._next_agreed(state.round),
            decided=None if screening.final.halt else screening.final,
        )
        if not screening.undecided or not self._may_test_again(state.tests) or screening.exclusion.halt:
            return state, screening
        clients = screening.grouping.clients
        design = further_design(
            self.federation,
            clients,
            screening.measured.best,
            state.revealed,
            gone=state.excluded | set(screening.exclusion.excluded),
            groups=self.screen.more_groups,
            rng=np.random.default_rng([self.seed, _ROWS]),
        )
        if design is None:
            return state, replace(screening, exclusion=screening.final)
        return replace(state, next_test=state.round + 1, grouping=Grouping(design=design, clients=clients)), screening

    def _may_test_again(self, tests: int) -> bool:
        """Whether a further test may follow so many, if clients stay undecided."""
        wanted = not self._agreed_tests and self.decode.on_undecided == "test-again"
        return wanted and tests < self.screen.most_rounds

    def _next_agreed(self, after: int) -> int:
        """The next test round that was agreed beforehand; 0 where there is none."""
        return next((number for number in self._agreed_tests if number > after), 0)

    def _require_going_on(self, step: Step, screening: ScreeningRound) -> None:
        kept, promised = len(self.federation.samples) - len(step.excluded), self.federation.ledger.promised
        if screening.exclusion.halt:
            refused = [record.reason for record in step.result.records if record.status == "refused"]
            ledger = f"; {len(refused)} sums were refused: {refused[0]}" if refused else ""
            self._halted = f"{screening.exclusion.reason}{ledger}"
        elif kept < promised:
            self._halted = (
                f"only {kept} clients are kept, no sum over them may be opened at the promised r = {promised}"
            )
        if self._halted:
            raise RunHaltedError(self._halted, step)


def _same(one: Parameters, other: Parameters) -> bool:
    """Whether a round left the model as it was; an optimiser's moments must not move it by themselves then."""
    return all(np.array_equal(one[name], other[name]) for name in one)


def _test_rows(screening: ScreeningRound) -> list[FloatArray]:
    """The real rows of the test sums that were opened, float64[clients] each."""
    column = {client: j for j, client in enumerate(screening.grouping.clients)}
    rows = []
    for record in screening.result.records:
        if record.status == "open" and record.purpose.startswith("test"):
            rows.append(np.zeros(len(column)))
            rows[-1][[column[client] for client in record.members]] = record.weights
    return rows


def _told(screening: ScreeningRound, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """What the user must not overlook about the test round and its new verdicts."""
    warnings = []
    if screening.screen.status != "tested":
        warnings.append(f"screen: {screening.screen.reason}")
    if screening.decoding.status in (*UNDECIDABLE, "unexplained", "harmless", "unconfirmed", "no-evidence"):
        warnings.append(f"decision: {screening.exclusion.reason}")
    for excluded, what in ((False, "kept without evidence"), (True, "left out untested")):
        untested = [v.client for v in verdicts if v.verdict == "untested" and v.excluded is excluded]
        if untested:
            warnings.append(f"{what}: {', '.join(untested)}")
    return tuple(warnings)
