"""The global model after a test: out of the sums that are open already, or of one more sum of the same local models.

Nobody who was left out has a part in it. Sums that are open reveal nothing more, whatever is made of them.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fedgt.errors import SpecError
from fedgt.federation.group_means import real_rows
from fedgt.federation.participants import Federation
from fedgt.federation.settings import DecodeSettings
from fedgt.federation.sums import RoundResult, joined, mean_update, plus, take, unusable
from fedgt.grouping import Grouping
from fedgt.privacy import SpanMean, best_in_span, largest_kept_sum
from fedgt.secagg import GroupSum
from fedgt.types import BoolArray, FloatArray, Parameters

_MOST_NOISE = 4.0
"""A mean from revealed sums with more than this many times the variance of the plain mean is not worth a step."""


def revealed_mean(
    federation: Federation,
    parameters: Parameters,
    sums: Sequence[GroupSum],
    grouping: Grouping,
    kept: Sequence[str],
    *,
    clean: BoolArray | None = None,
    combined: bool = True,
) -> tuple[Parameters, tuple[str, ...]]:
    """A mean of kept clients from sums that are open already, so that it reveals nothing more.

    Args:
        federation: For the weights.
        parameters: The global model at the start of the round.
        sums: Of the groups, in the order of the rows; those that are not open are left out.
        grouping: With the members that each opened sum is really over.
        kept: Whose mean it is to be.
        clean: bool[groups]: which groups have tested negative, one bit a group; None of graded evidence.
        combined: Whether sums may be combined, so that others cancel; else only clean groups are taken.

    Returns:
        The model, and a note where it stayed as it was.
    """
    opened = [i for i, one in enumerate(sums) if one.total is not None]
    if not opened or not kept:
        return parameters, ()
    best = None
    if combined:
        column = {client: j for j, client in enumerate(grouping.clients)}
        target = np.zeros(len(grouping.clients))
        rows = real_rows(federation, grouping)[opened]
        for client in kept:
            if rows[:, column[client]].any():
                target[column[client]] = federation.weight(client)
        best = _nearest(rows, target, subtract=clean is None) if target.any() else None
    if best is not None:
        coefficients = {i: float(b) for i, b in zip(opened, best.coefficients, strict=True) if b}
    elif clean is not None:
        negative = [i for i in opened if clean[i]]
        coefficients = dict.fromkeys(negative, 1.0 / max(sum(sums[i].weight for i in negative), 1))
        if not negative:
            return parameters, ("no group is clean, the global model stays as it was",)
    else:
        return parameters, (
            "no combination of the opened sums is free of the excluded clients and near the mean of the others: the "
            "global model stays as it was for this round",
        )
    update = {name: np.sum([b * _total(sums[i])[name] for i, b in coefficients.items()], axis=0) for name in parameters}
    return plus(parameters, update), ()


def _nearest(rows: FloatArray, target: FloatArray, *, subtract: bool) -> SpanMean | None:
    """A mean in the span without negative weights, or, if sums may be subtracted, with some where they cost little noise.

    One bit a group misses many an attacker; one that is subtracted does as much harm as one that is added, and the sums
    that must be subtracted are those of groups that tested positive.
    """
    best = best_in_span(rows, target=target, nonnegative=True)
    if best is None and subtract:
        best = best_in_span(rows, target=target)
    return best if best is not None and best.amplification <= _MOST_NOISE else None


def _total(one: GroupSum) -> Mapping[str, FloatArray]:
    if one.total is None:
        raise SpecError(f"the sum of group {one.group} is not open: {one.reason}")
    return one.total


def one_more_sum(
    federation: Federation,
    parameters: Parameters,
    result: RoundResult,
    sums: Sequence[GroupSum],
    grouping: Grouping,
    kept: tuple[str, ...],
    decoding: DecodeSettings,
    *,
    round: int,
    seen: Collection[int],
) -> RoundResult:
    """A sum of the same local models over the kept clients (the paper), or over as many of them as the promise allows."""
    members = kept
    if decoding.after_test == "largest-sum":
        column = {client: j for j, client in enumerate(grouping.clients)}
        opened = [i for i, one in enumerate(sums) if one.total is not None or i in seen]
        found = largest_kept_sum(
            real_rows(federation, grouping)[opened],
            weights=[federation.weight(client) for client in grouping.clients],
            kept=[column[client] for client in kept],
            privacy=federation.ledger.promised,
        )
        if found is None:
            return result
        members = tuple(sorted(grouping.clients[j] for j in found.clients))
    again = take(
        federation,
        parameters,
        round=round,
        purpose=decoding.after_test,
        groups=[members],
        override=decoding.allow_below_promise,
    )
    (total,) = again.sums.sums
    updated = result.parameters if total.total is None else plus(parameters, mean_update(total))
    return joined(result, again.result(updated, unusable(f"the {decoding.after_test} sum", total)))
