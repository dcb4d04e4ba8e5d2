"""Why is a client suspected? Each group's part in its log-odds."""

import numpy as np
import numpy.typing as npt

from fedgt.decode.compiled import Method, check_outcomes, single
from fedgt.decode.decoders import compile
from fedgt.decode.priors import Prior
from fedgt.defaults import METHOD
from fedgt.design import Design
from fedgt.types import ErrorRates, Outcomes


def explain(
    design: Design, outcomes: Outcomes, rates: ErrorRates, prior: Prior, *, method: Method = METHOD
) -> tuple[tuple[float, ...], ...]:
    """How much each group speaks for and against each client: the change of its log-odds when the group is left out.

    Returns:
        Element [j][i] is for the i-th group of client j (in the order of `design.groups_of(j)`): negative means that the
        group speaks against the client, positive that it speaks for it, infinite that it alone makes the client certain;
        0 for an erased group, and where the client is as certain without the group.

    Raises:
        ContradictoryOutcomesError: If the outcomes are impossible.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, from_matrix
        >>> from fedgt.decode import IndependentPrior, explain
        >>> design, prior = from_matrix([[1, 1, 0], [0, 1, 1]]), IndependentPrior.uniform(3, 0.2)
        >>> parts = explain(design, Outcomes.parse("01"), ErrorRates.symmetric(0.05), prior)
        >>> [[round(nats, 2) for nats in client] for client in parts]  # positive speaks for a client
        [[2.29], [2.73, -1.42], [-2.69]]
    """
    check_outcomes(outcomes.values[None], design)
    rows: list[npt.NDArray[np.int8]] = [outcomes.values]
    for group in range(design.groups):
        without = outcomes.values.copy()
        without[group] = -1
        rows.append(without)
    batch = compile(design, rates, prior, method=method).decode_batch(np.array(rows))
    single(batch, outcomes)  # refuses impossible outcomes
    with np.errstate(invalid="ignore"):
        change = batch.log_odds[0] - batch.log_odds[1:]  # [groups, clients]
    change = np.where(np.isnan(change), 0.0, change)
    return tuple(tuple(float(change[group, j]) for group in design.groups_of(j)) for j in range(design.clients))
