"""The protocol's sums without its masks: the same fixed-point integers, added in the clear. For Monte Carlo only.

Masks cancel in an opened sum, so what the server learns is the sum of the clients' encodings in the ring; here they are
added directly. Nothing is hidden from anybody, nobody can leave, and bytes are not counted. Tests compare with the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

import numpy as np

from fedgt.engine import Client, GoOn, SecureSums, Transport
from fedgt.errors import SpecError
from fedgt.secagg import AgreementLog, Authorise, Credentials, GroupSum, RoundPlan
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.masks import CHUNK_BYTES
from fedgt.secagg.vector import client_chunks, read_sum, scaled
from fedgt.types import Parameters


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskedSums:
    """Implements `fedgt.engine.TakesSums` with clients of this process.

    Attributes:
        clients: Client id -> client.
    """

    clients: Mapping[str, Client]

    def __call__(
        self,
        transport: Transport,
        plan: RoundPlan,
        parameters: Parameters,
        *,
        authorise: Authorise,
        timeout: float,
        center: Parameters | None = None,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
        go_on: GoOn | None = None,
    ) -> SecureSums:
        """See `fedgt.engine.secure_sums`; transport and timeout are not used.

        Raises:
            SpecError: If identities are given: signatures cannot be left out silently.
            ShapeError: If a client's training diverged; the protocol would go on without it.
        """
        if credentials is not None:
            raise SpecError("unmasked sums are for anonymous simulations; take secure sums, or no credentials")
        totals: list[RingArray] = [np.zeros(plan.length, dtype=plan.encoding.dtype) for _ in plan.groups]
        for client in dict.fromkeys(member for group in plan.groups for member in group):
            trained = self.clients[client].train(parameters, round=plan.round)
            own = [number for number, group in enumerate(plan.groups) if client in group]
            factors = {number: plan.factors(number)[client] for number in own}
            memory = np.empty(CHUNK_BYTES // plan.encoding.dtype.itemsize, dtype=plan.encoding.dtype)
            for start, levels in client_chunks(plan, client, trained.parameters, center, base=parameters):
                for number in own:
                    totals[number][start : start + levels.size] += scaled(levels, factors[number], memory)
        sums: tuple[GroupSum, ...] = ()
        for stage in range(len(plan.stages)):
            here = plan.of_stage(stage)
            asked = tuple(members if group in here else () for group, members in enumerate(plan.groups))
            withheld = authorise(asked)
            sums += tuple(_sum(plan, group, totals[group], withheld[group]) for group in here)
            taken = SecureSums(
                sums=sums,
                bytes_up=0,
                bytes_down=0,
                seconds=MappingProxyType({}),
                warnings=() if plan.encoding.warning is None else (plan.encoding.warning,),
            )
            if stage + 1 == len(plan.stages) or go_on is None or not go_on(taken):
                break
        return taken


def _sum(plan: RoundPlan, number: int, total: RingArray, withheld: str | None) -> GroupSum:
    members = plan.groups[number]
    reason = "the group has no clients" if not members else "" if withheld is None else f"withheld: {withheld}"
    opened = None if reason else read_sum(plan, total)
    return GroupSum(
        group=number,
        members=members,
        dropped=MappingProxyType({}),
        status="erased" if opened is None else "open",
        reason=reason,
        total=None if opened is None else opened.total,
        weight=plan.weight_of(number, members),
        clipped=0 if opened is None else opened.clipped,
        beta_total=None if opened is None else opened.beta_total,
    )
