"""Which clients are malicious: drawn before anything else is known."""

from collections.abc import Sequence

import numpy as np

from fedgt.errors import SpecError
from fedgt.types import IntArray


def draw_malicious(*, clients: int, count: int, rng: np.random.Generator) -> IntArray:
    """Which clients are malicious: `count` of them, uniformly at random, whatever the groups are.

    Returns:
        int64[count], ascending.

    Raises:
        SpecError: If the count is not from 0 to the number of clients.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import draw_malicious
        >>> len(draw_malicious(clients=15, count=3, rng=np.random.default_rng(0)))
        3
    """
    if not 0 <= count <= clients:
        raise SpecError(f"{count} malicious clients of {clients}: a number from 0 to {clients} is needed")
    return np.sort(rng.choice(clients, size=count, replace=False)).astype(np.int64)


def nested_malicious(
    *, clients: int, count: int, unusual: Sequence[int] = (), among: int = 0, rng: np.random.Generator
) -> IntArray:
    """Malicious clients such that, with the same generator, those of a smaller count are among those of a larger one.

    Args:
        clients: The number of clients.
        count: How many are malicious.
        unusual: Clients that are placed on purpose.
        among: So many of the unusual clients come first, the others of them last.
        rng: The source of the order.

    Returns:
        int64[count], ascending.

    Raises:
        SpecError: If the count is not from 0 to the number of clients.

    Examples:
        >>> import numpy as np
        >>> from fedgt.train import nested_malicious
        >>> two, three = (nested_malicious(clients=15, count=count, rng=np.random.default_rng(0)) for count in (2, 3))
        >>> set(two.tolist()) < set(three.tolist())
        True
    """
    if not 0 <= count <= clients:
        raise SpecError(f"{count} malicious clients of {clients}: a number from 0 to {clients} is needed")
    order = rng.permutation(clients)
    special = order[np.isin(order, list(unusual))]
    others = order[~np.isin(order, list(unusual))]
    chosen = np.concatenate([special[:among], others, special[among:]])[:count]
    return np.sort(chosen).astype(np.int64)
