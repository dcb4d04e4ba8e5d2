"""A federation from its first round to its last: the one loop, whatever carries the messages and whoever trains.

    run = FederationRun(clients, privacy=4, samples=samples, validation=validation)
    for step in run.rounds(parameters):
        print(step.round, step.purpose, step.excluded)

Everything that can be checked is checked before the first message. A run that may not go on raises `RunHaltedError`; it
never goes on with everybody.
"""

import logging
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedgt.design import AnyDesign
from fedgt.engine import MeetingTransport, OnStage, TakesSums, Transport, secure_sums
from fedgt.engine.endpoint import Client
from fedgt.errors import FedGTError, RunHaltedError, SpecError
from fedgt.federation.agenda import Agenda
from fedgt.federation.checks import check_plan, check_test
from fedgt.federation.coming_back import after_test
from fedgt.federation.conduct import judged, made_to_wait
from fedgt.federation.held_round import hold_round
from fedgt.federation.history import History, Witness
from fedgt.federation.local import LocalClients
from fedgt.federation.more_rows import with_more_groups
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.recorder import Recorder, opened
from fedgt.federation.round import ScreeningRound
from fedgt.federation.run_settings import digest_of, settings_of
from fedgt.federation.schedule import Standing, gone, rolled_back, settled
from fedgt.federation.seats import planned, seated
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings, SumSettings, Weighting
from fedgt.federation.state import Coming, Purpose, RunState, Step
from fedgt.federation.verdicts import Verdict
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.record.result import Heading, RunResult
from fedgt.secagg import AgreementLog, Credentials, PrekeyRequest
from fedgt.types import Parameters, require_model

if TYPE_CHECKING:
    from fedgt.federation.run_folder import RunFolder
    from fedgt.planning import Plan

_log = logging.getLogger(__name__)

_ONE_BATCH = ("next-round", "negative-groups")

NextModel: TypeAlias = Callable[[Parameters, Parameters], Parameters]
"""(global model of the round, mean that the sums give) -> the next global model; a server optimiser, for instance."""


class FederationRun:
    """Owns a run: who takes part, what is promised, when groups are tested, what is known so far, and who is out.

    Args:
        clients: The transport that reaches the clients; or the clients themselves, name -> `Client`, in this process.
        privacy: The promise r: no combination of what is opened about one set of local models mixes fewer clients.
        samples: Client -> its number of samples, public: its weight in every sum.
        validation: The server's validation set; None holds no test, and nobody is looked for.
        grouping: Who shares a group in the first test; or a plan (`read_plan`); or a design, whose seats are drawn, as are
            those of a plan without members; or None for the default design for so many clients.
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
        folder: Where the run leaves its plan, its account, its result and its log; see docs/howto/own-model.md. None leaves
            nothing.
        resume: Go on with the run that the folder holds, with the same settings; begin one where it holds none. The round
            that was under way when the server stopped is lost, and whatever it asked for counts as opened.
        seed: Of the seats, of the rows of further tests, and of the clusters' starting positions.
        take_sums: The protocol. Anything but `secure_sums` is for records and experiments in one process.
        on_stage: Told (round, purpose, stage) when a stage of the protocol begins.
        witness: What a simulation knows, for its record.

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
        grouping: "Grouping | Plan | AnyDesign | None" = None,
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
        folder: "Path | str | RunFolder | None" = None,
        resume: bool = False,
        seed: int = 0,
        take_sums: TakesSums = secure_sums,
        on_stage: OnStage | None = None,
        witness: Witness | None = None,
    ) -> None:
        """Check, and ask nobody yet."""
        _require_settings(screen, decode, sums, rfa)
        self.screen, self.decode = screen or ScreenSettings(), decode or DecodeSettings()
        self.rounds_planned, self.rfa, self.seed = rounds, rfa, seed
        self.validation = validation
        self.grouping: Grouping | None = None
        self._excluded, self._present, self._next_model = frozenset(excluded), present, next_model
        self.decode.require_for(self.screen)
        if rounds < 1:
            raise SpecError(f"{rounds} rounds; at least 1 is needed")
        self._agenda = Agenda.of(test_rounds, rounds, self.screen, self.decode)
        tested = validation is not None
        agreed = bool(self._agenda.agreed)
        self.screen = settled(self.screen, self.decode, rounds=rounds, tested=tested, agreed=agreed)
        self._standing = Standing.of(
            self.screen,
            self.decode,
            rounds=rounds,
            tested=tested,
            # Clients may know the seed of a real run, and nobody is to know in which rounds a test is drawn.
            secret=secrets.randbits(128) if witness is None else seed,
        )
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
            if credentials is not None:
                raise SpecError(
                    "the server has an identity, and these clients have none: build ClientEndpoint(name, client, "
                    "policy=..., credentials=...) for each, and give LocalTransport({name: endpoint.handle, ...}) "
                    "in their place; see docs/howto/own-model.md"
                )
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
            on_stage=on_stage,
        )
        self._has_account = ledger is not None
        self._state: RunState | None = None
        self._plan: Plan | None = None
        if validation is not None:
            graded = self.screen.kind == "graded"
            self.grouping, self._plan = seated(self.federation, grouping, graded=graded, seed=seed)
            check_plan(self.federation, self.grouping, self.screen, self.decode, rounds)
        self._recorder = self._recorded(folder, witness, resume=resume, named=name is not None)

    def rounds(self, parameters: Parameters) -> Iterator[Step]:
        """Hold all rounds, beginning at these parameters; nothing goes on until the next step is asked for.

        Raises:
            RunHaltedError: If the run may not go on.
        """
        try:
            self.begin(parameters)
            while (coming := self.coming()) is not None:
                yield self.hold(coming)
        finally:
            self.close()

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
        if halted := self._recorder.halted:
            raise RunHaltedError(halted)
        return tuple(sorted(set(self.federation.samples) - self.state.excluded))

    def begin(self, parameters: Parameters, *, after: int = 0) -> None:
        """Set the state before the first round; or, of a run that goes on, that after its last one.

        Args:
            parameters: The global model. A run that goes on has its own.
            after: The last round that is over, of a run that goes on without a folder.

        Raises:
            ShapeError: If the model is no dict of arrays, or labels or scores of the validation set do not have the form
                they need.
            SpecError: If the classification layer does not exist, or does not suit the groups; if a run goes on without the
                account of what was opened before.
        """
        if after and not self._has_account:
            raise SpecError(
                "a run that goes on needs the account of what was opened before: FederationRun(ledger=Ledger.kept_in(PATH, "
                "...)), with the same path from the first round"
            )
        tested = self.grouping is not None
        try:
            require_model(parameters)
            if self.grouping is not None and self.validation is not None:
                check_test(self.federation, parameters, self.grouping, self.validation, self.screen, further=False)
            first = RunState(
                parameters=parameters,
                ledger=self.federation.ledger,
                round=after,
                excluded=self._excluded,
                next_test=self.screen.round if tested and not self._agenda.agreed else self._agenda.next_agreed(after),
                grouping=self.grouping,
            )
            self._state = self._recorder.begin(first, plan=self._planned, settings=self._settings())
        except FedGTError:
            self._recorder.abandon()
            raise

    def coming(self) -> Coming | None:
        """The next round; None when all are over."""
        state = self.state
        number = state.round + 1
        if number > self._recorder.last(state):
            return None
        there = frozenset(self._there(number, state))
        if unknown := sorted(there - set(self.federation.samples)):
            raise SpecError(f"present in round {number}, but no client of this run: {', '.join(unknown)}")
        purpose: Purpose = "weiszfeld" if self.rfa is not None else "test" if number == state.next_test else "training"
        away = gone(state, self._standing) | (frozenset() if purpose == "test" else state.waiting)
        return Coming(
            round=number,
            purpose=purpose,
            members=tuple(client for client in self.federation.samples if client in there - away),
            parameters=state.parameters,
        )

    def most_groups(self, number: int) -> int:
        """The most groups that the plan of a coming round may have, for keys that clients publish ahead; 0 after the last.

        Args:
            number: The next round, whose groups are known; or the one after it, which may be a further test.
        """
        state, tested = self.state, 0 if self.grouping is None else self.grouping.design.groups
        if number > self._recorder.last(state):
            return 0
        if self._standing is not None:
            if number == state.round + 1 and state.grouping is not None:
                return state.grouping.design.groups
            return tested + self._standing.most_added
        # A fault of the round before makes several training sums of one.
        trained = 1 if number == 1 else max(1, len(self.federation.samples) // self._least)
        return self._agenda.most_groups(number, state, tested=tested, trained=trained)

    def hold(self, coming: Coming) -> Step:
        """Hold a round and go on to the state after it.

        Raises:
            RunHaltedError: If the run may not go on; its `step` is the round, which is on record.
            ClientsFailedError: If all clients of this process failed alike; the first error is its cause.
            FedGTError: If the round cannot be held. The state stays; what was opened is in the ledger.
        """
        if halted := self._recorder.halted:
            raise RunHaltedError(halted)
        state = self.state
        self._recorder.asks(coming)
        self._ask_ahead(coming.round + 1)
        held = hold_round(
            self.federation,
            coming,
            state,
            validation=self.validation,
            screen=self.screen,
            decode=self.decode,
            rfa=self.rfa,
            standing=self._standing,
            last=self._agenda.ends_with(coming.round, state, self._recorder.last(state)),
            least=self._least,
            seed=self.seed,
        )
        result, screening = held.result, held.screening
        if self._local is not None and not result.secure_sums:
            self._local.require_some(coming.members, coming.round)
        parameters = result.parameters
        if self._next_model is not None and not _same(coming.parameters, parameters):
            parameters = self._next_model(coming.parameters, parameters)
        state = replace(state, round=coming.round, parameters=parameters)
        news: tuple[Verdict, ...] = ()
        back: tuple[Verdict, ...] = ()
        halted = ""
        missing = () if screening is None else screening.missing
        state, liars, told = judged(state, coming, result, self.decode, missing, held.looked_away)
        if self._standing is not None and coming.purpose == "test":
            state = self._standing.held(state, result, screening, held.look, held.looked_away)
        if screening is not None:
            if self._standing is None:
                state, screening = self._agenda.after(
                    state, screening, self.federation, first=self.grouping, seed=self.seed
                )
            # Who was left out by an earlier test is not in this one: the verdict stays.
            news = tuple(v for v in screening.exclusion.verdicts if v.client not in state.excluded)
            state = replace(
                state,
                verdicts=MappingProxyType({**state.verdicts, **{v.client: v for v in news}}),
                excluded=state.excluded | set(screening.exclusion.excluded),
            )
            _log.info("round %d: %s", coming.round, screening.exclusion.reason)
            state, back = after_test(state, screening, news, after=self.screen.readmit_after)
        state, undone = rolled_back(state, screening)
        news = (*news, *liars, *back)
        mute = () if screening is None else result.silent
        state, waits = made_to_wait(state, self.federation.samples, self.decode, mute=mute, least=self._least)
        state = self._with_more_groups(state, screening)
        if screening is not None:
            halted = screening.halts(
                len(self.federation.samples) - len(state.excluded), self.federation.ledger.promised
            )
        self._state = state
        step = Step(
            round=coming.round,
            purpose="training" if coming.purpose == "test" and screening is None else coming.purpose,
            members=coming.members,
            parameters=state.parameters,
            result=result,
            screening=screening,
            verdicts=news,
            excluded=tuple(sorted(state.excluded)),
            warnings=(
                *(() if screening is None else screening.told(news)),
                *told,
                *waits,
                *undone,
                *(f"round {coming.round}: {one.reason}" for one in back),
            ),
            readmitted=MappingProxyType({one.client: state.trials[one.client] for one in back}),
        )
        self._recorder.add(step, state, halted=halted)
        if halted:
            raise RunHaltedError(halted, step)
        return step

    def result(self) -> RunResult:
        """What the run leaves, if it ended now; the same for every transport, but for seconds and bytes."""
        return self._recorder.result()

    def fail(self, reason: str) -> None:
        """End the run: it failed, for this reason. What was opened until now is on record."""
        self._recorder.end("failed", reason)

    def close(self) -> None:
        """Let others work in the run's folder; a run that has not ended is interrupted."""
        self._recorder.close()

    @property
    def history(self) -> History:
        """What was done until now, as rows."""
        return self._recorder.history

    def _recorded(
        self, folder: "Path | str | RunFolder | None", witness: Witness | None, *, resume: bool, named: bool
    ) -> Recorder:
        """Where the record of the run goes."""
        real, place = witness is None, None
        if resume and folder is None:
            raise SpecError("a run goes on with what its folder holds: give the folder, too")
        if folder is not None:
            place, self.federation = opened(folder, self.federation, resume=resume, named=named, real=real)
        settings = self._settings()
        heading = Heading(
            method=settings["method"], seed=self.seed, spec_hash=digest_of(settings), rounds=self.rounds_planned
        )
        history = History(
            self.federation,
            heading if witness is None else witness.heading,
            validation=self.validation,
            excluded=self._excluded if real else (),
            witness=witness,
        )
        return Recorder(self.federation, history, place, real=real)

    def _settings(self) -> dict[str, Any]:
        return settings_of(
            self.federation,
            method="rfa" if self.rfa is not None else "fedgt" if self.validation is not None else "no-defence",
            rounds=self.rounds_planned,
            test_rounds=self._agenda.agreed,
            seed=self.seed,
            screen=self.screen,
            decode=self.decode,
            rfa=self.rfa,
            excluded=self._excluded,
        )

    def _planned(self) -> "Plan | None":
        if self.grouping is None:
            return None
        return self._plan or planned(self.federation, self.grouping, self.screen, self.decode)

    def _there(self, number: int, state: RunState) -> Collection[str]:
        if self._present is not None:
            return self._present(number)
        transport = self.federation.transport
        if not isinstance(transport, MeetingTransport):
            return tuple(self.federation.samples)
        self._ask_ahead(number)
        # A site may still be busy with a round that was lost, for as long as a stage may take, and answers nothing else.
        wait = self.federation.sums.timeout_seconds if number - 1 in state.lost else 0.0
        return transport.meet(without=gone(state, self._standing), wait=wait)

    def _ask_ahead(self, number: int) -> None:
        """Have the clients asked for the keys of a coming round, over a transport that brings them ahead."""
        transport = self.federation.transport
        if isinstance(transport, MeetingTransport):
            groups = self.most_groups(number)
            run = self.federation.run
            transport.prekeys.request = PrekeyRequest(run=run, round=number, groups=groups) if groups else None

    def _with_more_groups(self, state: RunState, screening: ScreeningRound | None) -> RunState:
        if self._standing is None or self.grouping is None or not self._standing.most_added:
            return state
        again = screening if self.decode.on_undecided == "test-again" else None
        added, seed = self._standing.most_added, self.seed
        return with_more_groups(
            state, again, federation=self.federation, planned=self.grouping, groups=added, seed=seed
        )

    @property
    def _least(self) -> int:
        """The fewest clients of a training sum."""
        return max(self.federation.ledger.promised, self.federation.sums.colluders + 2)


def _same(one: Parameters, other: Parameters) -> bool:
    """Whether a round left the model as it was; an optimiser's moments must not move it by themselves then."""
    return all(np.array_equal(one[name], other[name]) for name in one)


def _require_settings(*given: object) -> None:
    kinds = {"screen": ScreenSettings, "decode": DecodeSettings, "sums": SumSettings, "rfa": RfaSettings}
    for (name, kind), value in zip(kinds.items(), given, strict=True):
        if value is not None and not isinstance(value, kind):
            raise SpecError(f"{name} = {value!r}; fedgt.federation.{kind.__name__}(...) is needed")
