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
from fedgt.errors import SpecError
from fedgt.federation import DecodeSettings, Federation, ScreenSettings, SumSettings, Validation
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.federation.sums import RoundResult
from fedgt.flower.grid_transport import FlowerTransport
from fedgt.flower.inprocess import InProcessGrid
from fedgt.flower.optimizer import ServerOptimizer, stepped
from fedgt.flower.records import inputs_of
from fedgt.grouping import Grouping
from fedgt.privacy import Ledger
from fedgt.secagg import AgreementLog, Credentials, PrekeyRequest
from fedgt.types import LayeredEvidence, Parameters

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

        federation = Federation(
            run=self.run or f"flower-{secrets.token_hex(8)}",
            transport=nodes,
            ledger=account,
            samples=self.samples or dict.fromkeys(clients, 1),
            weighting="equal" if self.samples is None else "samples",
            sums=SumSettings(
                clip=self.clip,
                fraction_bits=self.fraction_bits,
                timeout_seconds=self.timeout,
                colluders=self.colluders,
            ),
            inputs=inputs_of(self.config),
            credentials=self.credentials,
            agreements=None if self.credentials is None else AgreementLog(self.credentials.registry, self.agreements),
            take_sums=take_sums,
        )
        patience = min(self.timeout, _ACQUAINTANCE)
        prekeys.request = self._prekeys(federation.run, begin)
        nodes.roster.gather(patience, wait=self.wait, without=excluded)
        out = set(excluded)
        evidence: list[LayeredEvidence] = []
        for number in range(begin, self.rounds + 1):
            began = time.monotonic()
            seconds.clear()
            present = nodes.roster.meet(patience, without=out)
            # Those of the next round come with the last replies of this one.
            prekeys.request = self._prekeys(federation.run, number + 1)
            members = [client for client in present if client not in out]
            result, screening = self._round(federation, parameters, number, members, evidence)
            parameters = stepped(self.optimizer, parameters, result.parameters)
            out |= set(screening.exclusion.excluded) if screening is not None else set()
            record = FlowerRound(
                round=number,
                parameters=parameters,
                result=result,
                screening=screening,
                connected=present,
                refused=dict(nodes.roster.refused),
                excluded=tuple(sorted(out)),
                seconds={**seconds, "round": time.monotonic() - began},
                halt=self._halt(screening, len(clients) - len(out)),
            )
            yield record
            if record.halt:
                logger.warning("the run stops after round %d: %s", number, record.halt)
                return

    def _account(self, clients: Sequence[str], ledger: Ledger | Path | str | None, *, begun: bool) -> Ledger:
        if isinstance(ledger, Path | str):
            return Ledger.kept_in(Path(ledger), clients=clients, promised=self.privacy, begun=begun)
        if ledger is None and begun:
            raise SpecError(
                "a run that goes on needs the account of what was opened before: start(..., ledger=PATH), with the same "
                "path from the first round"
            )
        if ledger is not None:
            Ledger(clients=clients, promised=self.privacy).merge(ledger)
        return ledger or Ledger(clients=clients, promised=self.privacy)

    def _round(
        self,
        federation: Federation,
        parameters: Parameters,
        number: int,
        members: Sequence[str],
        evidence: list[LayeredEvidence],
    ) -> tuple[RoundResult, ScreeningRound | None]:
        if number not in self.test_rounds:
            return training_round(federation, parameters, round=number, members=members), None
        screening = screening_round(
            federation,
            parameters,
            round=number,
            grouping=self.grouping,
            present=members,
            validation=self.validation,
            screen=self.screen,
            decoding=self.decoding,
            earlier=tuple(evidence),
            last=number == max(self.test_rounds),
        )
        if screening.measured.evidence is not None:
            evidence.append(screening.measured.evidence)
        return screening.result, screening

    def _prekeys(self, run: str, number: int) -> PrekeyRequest | None:
        """For as many groups as the round has: what its plan is about is not known yet."""
        if number > self.rounds:
            return None
        groups = self.grouping.design.groups if number in self.test_rounds else 1
        return PrekeyRequest(run=run, round=number, groups=groups)

    def _halt(self, screening: ScreeningRound | None, kept: int) -> str:
        if screening is not None and screening.exclusion.halt:
            return screening.exclusion.reason
        if kept < self.privacy:
            return f"{kept} clients are left, below privacy = {self.privacy}"
        return ""
