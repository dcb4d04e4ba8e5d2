"""How many clients must help the server before the opened sums expose somebody, and everybody."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.privacy.support import Support, exact_rows, reduced_modulo


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposingColluders:
    """The fewest colluders, in the worst places, that leave others without cover.

    Attributes:
        somebody: So many expose one other client exactly; fewer expose nobody. Proved.
        somebody_upper: So many certainly do; equal to `somebody` where r is known exactly.
        everybody: So many expose all other clients at once. Exact.

    Examples:
        >>> from fedgt import minimum_support
        >>> from fedgt.privacy import exposing_colluders
        >>> rows = [[1, 1, 1, 1]]  # one sum over four clients
        >>> found = exposing_colluders(rows, minimum_support(rows))
        >>> found.somebody, found.everybody
        (3, 3)
    """

    somebody: int
    somebody_upper: int
    everybody: int


def exposing_colluders(rows: npt.ArrayLike, support: Support) -> ExposingColluders:
    """From the real minimum support and the rank.

    Somebody: colluders know their own models. They subtract them from a combination of r clients; r - 1 of them leave the
    last one alone, and fewer leave at least two in every combination.

    Everybody: the others are all known exactly if their columns are independent. At most as many columns as the rank k
    are, and some k columns are. Of n clients in the sums n - k colluders are enough, and no fewer.

    Args:
        rows: float or int [aggregates, clients], as for `minimum_support`; something must be revealed.
        support: Its answer.

    Examples:
        >>> from fedgt import minimum_support, named_design
        >>> from fedgt.privacy import exposing_colluders
        >>> rows = named_design("bch-15x8").matrix
        >>> found = exposing_colluders(rows, minimum_support(rows))
        >>> found.somebody, found.everybody
        (3, 7)
    """
    exact, _ = exact_rows(rows)
    seen = int(np.asarray(rows).any(axis=0).sum())
    return ExposingColluders(
        somebody=support.lower - 1,
        somebody_upper=support.upper - 1,
        everybody=seen - len(reduced_modulo(exact)),
    )
