"""Robust federated aggregation: the geometric median by the smoothed Weiszfeld algorithm, on secure sums.

Pillutla, Kakade and Harchaoui 2022, "Robust Aggregation for Federated Learning", algorithm 2 (reference 17 of the paper).
Each iteration is one secure sum of beta_j u_j and beta_j with beta_j = alpha_j / max(nu, ||v - u_j||); the client computes
its beta_j, the server learns the two sums. A baseline: it names nobody and keeps everybody.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from fedgt.federation.participants import Federation
from fedgt.federation.settings import RfaSettings
from fedgt.federation.sums import RoundResult, Weiszfeld, joined, take
from fedgt.secagg import weiszfeld_encoding
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
    rfa: RfaSettings,
) -> RoundResult:
    """One round of RFA: the new model is the old one plus the approximate geometric median of the updates.

    Args:
        federation: Who takes part; `weighting` gives alpha_j.
        parameters: The global model at the start of the round.
        round: Its number.
        members: The clients.
        rfa: How many Weiszfeld steps, each one secure sum (the paper and its reference take 3), and nu.

    Returns:
        The round; if a sum cannot be opened, the iterations end there, with a warning.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ClientEndpoint, Ledger, LocalTransport, TrainedModel
        >>> from fedgt.federation import Federation, RfaSettings, rfa_round
        >>> class Site:
        ...     def __init__(self, step):
        ...         self.step = step
        ...     def train(self, parameters, *, round):
        ...         return TrainedModel(parameters={"weight": parameters["weight"] + self.step}, samples=10)
        >>> sites = {"ada": Site(1.0), "bob": Site(1.0), "cleo": Site(7.0)}  # the mean would be 3
        >>> federation = Federation(
        ...     run="example",
        ...     transport=LocalTransport({name: ClientEndpoint(name, site).handle for name, site in sites.items()}),
        ...     ledger=Ledger(clients=list(sites), promised=1),
        ...     samples=dict.fromkeys(sites, 10),
        ... )
        >>> rfa = RfaSettings(iterations=5)
        >>> result = rfa_round(federation, {"weight": np.zeros(2)}, round=1, members=list(sites), rfa=rfa)
        >>> bool(result.parameters["weight"].max() < 2.0)
        True
    """
    group, smoothing = tuple(sorted(members)), rfa.smoothing
    require_model(parameters)
    center: dict[str, FloatArray] = {name: np.zeros(array.shape) for name, array in parameters.items()}
    warnings = [GENERAL_POSITION]
    encoding = weiszfeld_encoding(update_clip=federation.sums.clip, smoothing=smoothing, members=len(group))
    if encoding.step > _COARSE:
        warnings.append(
            f"RFA's smoothing {smoothing:g} and clip {federation.sums.clip:g} leave a fixed-point step of "
            f"{encoding.step:g}: the median is that coarse; raise the smoothing or lower the clip"
        )
    parts: list[RoundResult] = []
    for step in range(rfa.iterations):
        where = Weiszfeld(step=step, smoothing=smoothing, center=center)
        taken = take(federation, parameters, round=round, purpose=f"weiszfeld-{step}", groups=[group], weiszfeld=where)
        parts.append(taken.result(parameters, ()))
        (total,) = taken.sums.sums
        warnings += [warning for warning in taken.warnings if warning not in warnings]
        if total.total is None or total.beta_total is None:
            warnings.append(
                f"round {round}, Weiszfeld step {step} is not open, the iterations end there: {total.reason}"
            )
            break
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
    return replace(reduce(joined, parts), parameters=updated, warnings=tuple(warnings))
