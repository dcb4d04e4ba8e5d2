"""The server's half: rounds of secure sums, the group test among them, over a Flower grid."""

import logging
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedgt.engine import PrekeyStore, SecureSums, secure_sums
from fedgt.errors import RunHaltedError, SpecError
from fedgt.federation import (
    DecodeSettings,
    FederationRun,
    ScreeningRound,
    ScreenSettings,
    Step,
    SumSettings,
    Validation,
)
from fedgt.federation.sums import RoundResult
from fedgt.flower.grid_transport import FlowerTransport
from fedgt.flower.inprocess import InProcessGrid
from fedgt.flower.optimizer import ServerOptimizer, stepped
from fedgt.flower.records import inputs_of
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.secagg import AgreementLog, Credentials, PrekeyRequest
from fedgt.types import Parameters

logger = logging.getLogger(__name__)

_ACQUAINTANCE = 120.0  # seconds for a node to say who it is; it need not train for that


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlowerRound:
    """One finished round.

    Attributes:
        round: Its number, from 1.
        parameters: The global model after it.
        result: Every aggregate that was asked for, bytes and warnings.
        screening: The test with its evidence and verdicts, in a test round.
        connected: The clients whose nodes were there.
        refused: Node id -> why a node took no part.
        excluded: Everybody who is left out from now on.
        seconds: Stage -> wall-clock seconds; "round" is the whole round with the server's own work.
        halt: Why the run stops here; empty if it goes on.
    """

    round: int
    parameters: Parameters
    result: RoundResult
    screening: ScreeningRound | None
    connected: tuple[str, ...]
    refused: Mapping[int, str]
    excluded: tuple[str, ...]
    seconds: Mapping[str, float]
    halt: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedGT:
    """Federated averaging by secure sums with a group test, for `@app.main()` of a Flower ServerApp.

    Attributes:
        grouping: Who shares a group; its names are those that the nodes have (`Site.client`).
        privacy: The promise r: no combination of what is opened mixes fewer clients.
        validation: The server's validation set.
        screen: How groups are tested.
        decoding: How suspects are named, and the policies. `after_test="same-round"` needs a second sum of one local
            model, which no site keeps between Flower messages: refused.
        rounds: How many.
        test_rounds: In which of them the groups are tested; graded evidence adds up over them.
        samples: Client -> its number of samples, public: its weight in every sum. None weighs all alike.
        clip: Entries of an update are clipped to [-clip, clip], and counted.
        fraction_bits: The fixed-point step is 2^-fraction_bits.
        timeout: Seconds per stage until a silent node counts as dropped.
        wait: Seconds to wait for all clients to connect before the first round; then those who are there begin.
        credentials: The server's identity and the clients' keys. None is ANONYMOUS MODE, for simulations.
        optimizer: What becomes of the average update; None adds it. See `fedgt.flower.adaptive`.
        colluders: How many clients may work together with a server that lies; no client's policy may ask for more.
        largest_share: No local models are opened so far that the sums explain more of what is particular to a client, also
            with the colluders' help; 1 is no limit (docs/disclosed-share.md).
        config: The run's configuration (`context.run_config`), which every client trains with: a client refuses a run whose
            configuration is not the one that it has itself.
        agreements: The folder of what the clients have signed, so that a restarted server, and the next run, goes on with
            it; clients that have signed before refuse a server without. None keeps it for this run only.
        run: The name of the run, needed when its terms were agreed beforehand; by default a new one for every start.
        poll: At most so many seconds between two looks for replies.

    Raises:
        SpecError: If something does not fit.
    """

    grouping: Grouping
    privacy: int
    validation: Validation
    screen: ScreenSettings = field(default_factory=ScreenSettings)
    decoding: DecodeSettings = field(default_factory=DecodeSettings)
    rounds: int = 10
    test_rounds: Collection[int] = (1,)
    samples: Mapping[str, int] | None = None
    clip: float = 8.0
    fraction_bits: int = 24
    timeout: float = 600.0
    wait: float = 60.0
    credentials: Credentials | None = None
    optimizer: ServerOptimizer | None = None
    colluders: int = 1
    largest_share: float = 1.0
    config: Mapping[str, bool | float | int | str] = field(default_factory=dict)
    agreements: Path | None = None
    run: str | None = None
    poll: float = 0.5

    def __post_init__(self) -> None:
        """Check what can be checked before anybody is asked."""
        if self.decoding.after_test != "next-round":
            raise SpecError('after_test = "same-round": over Flower no site keeps its local model; take "next-round"')
        if self.rounds < 1 or not all(1 <= number <= self.rounds for number in self.test_rounds):
            raise SpecError(
                f"test rounds {sorted(self.test_rounds)} of {self.rounds} rounds: numbers from 1 are needed"
            )
        if self.samples is not None and (unknown := sorted(set(self.grouping.clients) - set(self.samples))):
            raise SpecError(f"the number of samples of {', '.join(unknown)} is missing: give all, or None")

    def start(
        self,
        grid: Grid,
        parameters: Parameters,
        *,
        begin: int = 1,
        excluded: Collection[str] = (),
        ledger: Ledger | Path | str | None = None,
    ) -> Iterator[FlowerRound]:
        """Run the rounds; each is yielded when it is finished, and nothing goes on until the next is asked for.

        Args:
            grid: What `@app.main()` got, or an `InProcessGrid`.
            parameters: The first global model: tensor name -> array.
            begin: The first round, after a server that was interrupted; give the last finished `parameters` with it.
            excluded: Who is left out already.
            ledger: The file of the account of what was opened; or an account. A run that goes on needs it: a sum that was
                refused before must stay refused. None is an empty account, for a run that nobody will go on with.

        Yields:
            One record per round; the last one says why if the run stopped early.

        Raises:
            SpecError: If a run goes on without its account, or with one of other clients or another promise.
        """
        clients = tuple(sorted(self.grouping.clients))
        account = self._account(clients, ledger, begun=begin > 1)
        make = grid.message if isinstance(grid, InProcessGrid) else Message
        prekeys = PrekeyStore()
        nodes = FlowerTransport(
            grid, clients, credentials=self.credentials, prekeys=prekeys, make_message=make, poll=self.poll
        )
        seconds: dict[str, float] = {}

        def take_sums(*args: Any, **options: Any) -> SecureSums:
            sums = secure_sums(*args, **options, prekeys=prekeys)
            seconds.update(sums.seconds)
            return sums

        patience = min(self.timeout, _ACQUAINTANCE)
        connected: tuple[str, ...] = ()

        def present(_: int) -> tuple[str, ...]:
            nonlocal connected
            connected = nodes.roster.meet(patience, without=run.state.excluded)
            return connected

        tested = bool(self.test_rounds)
        run = FederationRun(
            nodes,
            privacy=self.privacy,
            samples=self.samples or dict.fromkeys(clients, 1),
            validation=self.validation if tested else None,
            grouping=self.grouping if tested else None,
            rounds=self.rounds,
            test_rounds=self.test_rounds,
            screen=self.screen,
            decode=self.decoding,
            weighting="equal" if self.samples is None else "samples",
            sums=SumSettings(
                clip=self.clip,
                fraction_bits=self.fraction_bits,
                timeout_seconds=self.timeout,
                colluders=self.colluders,
                largest_share=self.largest_share,
            ),
            excluded=excluded,
            ledger=account,
            present=present,
            next_model=lambda old, average: stepped(self.optimizer, old, average),
            inputs=inputs_of(self.config),
            credentials=self.credentials,
            agreements=None if self.credentials is None else AgreementLog(self.credentials.registry, self.agreements),
            name=self.run or f"flower-{secrets.token_hex(8)}",
            take_sums=take_sums,
        )
        run.begin(parameters, after=begin - 1)
        prekeys.request = self._prekeys(run.federation.run, begin)
        nodes.roster.gather(patience, wait=self.wait, without=excluded)
        began, halt = time.monotonic(), ""
        while not halt and (coming := run.coming()) is not None:
            seconds.clear()
            # Those of the next round come with the last replies of this one.
            prekeys.request = self._prekeys(run.federation.run, coming.round + 1)
            try:
                step = run.hold(coming)
            except RunHaltedError as stopped:
                if not isinstance(stopped.step, Step):
                    raise
                step, halt = stopped.step, str(stopped)
                logger.warning("the run stops after round %d: %s", step.round, halt)
            yield FlowerRound(
                round=step.round,
                parameters=step.parameters,
                result=step.result,
                screening=step.screening,
                connected=connected,
                refused=dict(nodes.roster.refused),
                excluded=step.excluded,
                seconds={**seconds, "round": time.monotonic() - began},
                halt=halt,
            )
            began = time.monotonic()

    def _account(self, clients: Sequence[str], ledger: Ledger | Path | str | None, *, begun: bool) -> Ledger | None:
        if isinstance(ledger, Path | str):
            return Ledger.kept_in(
                Path(ledger),
                clients=clients,
                promised=self.privacy,
                largest_share=self.largest_share,
                colluders=self.colluders,
                begun=begun,
            )
        if ledger is None and begun:
            raise SpecError(
                "a run that goes on needs the account of what was opened before: start(..., ledger=PATH), with the same "
                "path from the first round"
            )
        return ledger

    def _prekeys(self, run: str, number: int) -> PrekeyRequest | None:
        """For as many groups as the round has: what its plan is about is not known yet."""
        if number > self.rounds:
            return None
        groups = self.grouping.design.groups if number in self.test_rounds else 1
        return PrekeyRequest(run=run, round=number, groups=groups)
