"""Robust federated aggregation: the geometric median by the smoothed Weiszfeld algorithm, on secure sums.

Pillutla, Kakade and Harchaoui 2022, "Robust Aggregation for Federated Learning", algorithm 2 (reference 17 of the paper).
Each iteration is one secure sum of beta_j u_j and beta_j with beta_j = alpha_j / max(nu, ||v - u_j||); the client computes
its beta_j, the server learns the two sums. A baseline: it names nobody and keeps everybody.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedgt.engine import fingerprint
from fedgt.federation.participants import Federation
from fedgt.federation.sums import AggregateRecord, RoundResult
from fedgt.secagg import RoundPlan, default_threshold, tensor_specs, weiszfeld_encoding
from fedgt.types import FloatArray, Parameters, require_model

GENERAL_POSITION = (
    "only the clients know the weights of RFA's sums; their privacy r is computed for weights in general position"
)


_COARSE = 1e-6


def rfa_round(
    federation: Federation,
    parameters: Parameters,
    *,
    round: int,
    members: Sequence[str],
    iterations: int = 3,
    smoothing: float = 1e-6,
) -> RoundResult:
    """One round of RFA: the new model is the old one plus the approximate geometric median of the updates.

    Args:
        federation: Who takes part; `weighting` gives alpha_j.
        parameters: The global model at the start of the round.
        round: Its number.
        members: The clients.
        iterations: Weiszfeld steps, each one secure sum (the paper and its reference take 3).
        smoothing: nu, in the unit of the update's 2-norm.

    Returns:
        The round; if a sum cannot be opened, the iterations end there, with a warning.
    """
    group = tuple(sorted(members))
    require_model(parameters)
    center: dict[str, FloatArray] = {name: np.zeros(array.shape) for name, array in parameters.items()}
    records: list[AggregateRecord] = []
    warnings: list[str] = [GENERAL_POSITION]
    refused: list[str] = []
    up = down = clipped = opened = 0
    encoding = weiszfeld_encoding(update_clip=federation.sums.clip, smoothing=smoothing, members=len(group))
    if encoding.step > _COARSE:
        warnings.append(
            f"RFA's smoothing {smoothing:g} and clip {federation.sums.clip:g} leave a fixed-point step of "
            f"{encoding.step:g}: the median is that coarse; raise the smoothing or lower the clip"
        )
    for step in range(iterations):
        plan = RoundPlan(
            run=federation.run,
            round=round,
            purpose=f"weiszfeld-{step}",
            groups=(group,),
            thresholds=(default_threshold(len(group), colluders=federation.sums.colluders),),
            weights={client: federation.weight(client) for client in group},
            encoding=encoding,
            tensors=tensor_specs(parameters),
            task="weiszfeld",
            smoothing=smoothing,
            update_clip=federation.sums.clip,
            colluders=federation.sums.colluders,
            inputs=federation.inputs,
        )
        # The server does not know the weights: it books a row in general position.
        generic = np.random.default_rng([round, step]).integers(1, 1 << 20, size=len(group))
        nominal = dict(zip(group, generic.astype(float).tolist(), strict=True))

        def authorise(
            present: tuple[tuple[str, ...], ...], nominal: Mapping[str, float] = nominal
        ) -> tuple[str | None, ...]:
            rows = [{client: nominal[client] for client in one} for one in present]
            verdicts = federation.ledger.permit(rows, models=fingerprint(parameters).hex(), test=False)
            refused.extend(verdict for verdict in verdicts if verdict is not None)
            return verdicts

        sums = federation.take_sums(
            federation.transport,
            plan,
            parameters,
            authorise=authorise,
            timeout=federation.sums.timeout_seconds,
            center=center,
            credentials=federation.credentials,
            agreements=federation.agreements,
        )
        (total,) = sums.sums
        up, down, clipped = up + sums.bytes_up, down + sums.bytes_down, clipped + total.clipped
        present = tuple(sorted(total.members))
        warnings += [warning for warning in sums.warnings if warning not in warnings]
        records.append(
            AggregateRecord(
                round=round,
                purpose=plan.purpose,
                members=present,
                weights=(),
                status="open" if total.status == "open" else "refused" if refused else "erased",
                reason=total.reason,
                dropped=dict(total.dropped),
                model=fingerprint(parameters).hex(),
            )
        )
        if total.total is None or total.beta_total is None:
            warnings.append(
                f"round {round}, Weiszfeld step {step} is not open, the iterations end there: {total.reason}"
            )
            break
        opened += 1
        if total.beta_total <= 0:
            warnings.append(
                f"round {round}, Weiszfeld step {step}: all weights vanished in the fixed point, the iterations end "
                "there; raise rfa.smoothing or lower the clip"
            )
            break
        center = {name: values / total.beta_total for name, values in total.total.items()}
    updated = {
        name: (array.astype(np.float64) + center[name]).astype(array.dtype) for name, array in parameters.items()
    }
    return RoundResult(
        parameters=updated,
        records=tuple(records),
        secure_sums=opened,
        bytes_up=up,
        bytes_down=down,
        clipped=clipped,
        warnings=tuple(warnings),
    )
