"""Banded (spatially coupled) designs: exact decoding for hundreds of clients.

Clients stand in a line, and each takes part in w of the b consecutive groups in front of it. The chain ends where the groups
end, as in the terminated convolutional LDPC ensembles of S. Kudekar, T. Richardson and R. Urbanke, "Threshold saturation via
spatial coupling: why convolutional LDPC ensembles perform so well over the BEC", IEEE Transactions on Information Theory 57,
2011; low-density matrices as such are R. G. Gallager's ("Low-Density Parity-Check Codes", MIT Press 1963).

An exact decoder that walks along the line has at most b groups open, whatever the number of clients: 2^b states.
"""

from itertools import combinations

import numpy as np

from fedgt.design.matrix import Design, check_size
from fedgt.errors import DesignError
from fedgt.types import BitArray

MAX_WINDOW = 16
"""The widest window: exact decoding costs n 2^window, and the choices within a window are listed."""


def banded(clients: int, groups: int, *, per_client: int, window: int, rng: np.random.Generator) -> Design:
    """A design whose client j is in `per_client` of `window` consecutive groups, the windows moving along with j.

    Within its window every client gets the groups that have the most places left for the clients still to come, ties at
    random, and a set of groups that no client before has, as long as there is one. So group sizes differ little.

    Args:
        clients: n, in the order of the band.
        groups: m, at most n.
        per_client: w, from 1 to b.
        window: b, from 1 to the smaller of m and 16.
        rng: Breaks ties; the same state gives the same design.

    Returns:
        A design in which, clients taken in order, at most `window` groups are open at once.

    Raises:
        DesignError: If the numbers do not fit, or a group is left empty.

    Examples:
        >>> import numpy as np
        >>> from fedgt.design import banded
        >>> design = banded(12, 6, per_client=2, window=3, rng=np.random.default_rng(0))
        >>> design.matrix.sum(axis=0).tolist()
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    """
    check_size(clients, groups)
    if groups < 1 or not groups <= clients:
        raise DesignError(f"banded design of {clients} clients and {groups} groups; 1 to {clients} groups are possible")
    if not 1 <= per_client <= window <= min(groups, MAX_WINDOW):
        raise DesignError(
            f"banded design of {groups} groups, {per_client} of {window} consecutive ones a client; a window from 1 to "
            f"{min(groups, MAX_WINDOW)} is needed, and from 1 to the window groups a client"
        )
    chosen = np.array(list(combinations(range(window), per_client)))
    patterns = np.zeros((len(chosen), window), dtype=np.uint8)
    np.put_along_axis(patterns, chosen, 1, axis=1)
    return Design(
        matrix=_filled(clients, groups, patterns, rng),
        name=f"banded-{clients}x{groups}-w{per_client}-b{window}",
        source=f"every client in {per_client} of {window} consecutive groups (Kudekar, Richardson and Urbanke 2011)",
    )


def _filled(clients: int, groups: int, patterns: BitArray, rng: np.random.Generator) -> BitArray:
    window, per_client = patterns.shape[1], int(patterns[0].sum())
    # Client j stands at group j m / n, in the middle of its window; at the ends more clients share the last windows.
    starts = np.clip(np.arange(clients) * groups // clients - (window - 1) // 2, 0, groups - window)
    # Group i can be chosen by the clients whose window holds it.
    reach = (starts[:, None] <= np.arange(groups)) & (np.arange(groups) < starts[:, None] + window)
    to_come = reach[::-1].cumsum(axis=0)[::-1]  # clients from here on that can choose the group
    target = clients * per_client / groups
    matrix = np.zeros((groups, clients), dtype=np.uint8)
    size = np.zeros(groups)
    values = [int("".join(map(str, pattern)), 2) for pattern in patterns[:, ::-1].tolist()]
    used: set[int] = set()  # columns as integers, bit i for group i
    for client, start in enumerate(starts.tolist()):
        view = slice(start, start + window)
        urgency = (target - size[view]) / to_come[client, view]
        best_first = np.argsort(-(patterns @ urgency) - 1e-6 * rng.random(len(patterns))).tolist()
        pattern = next((p for p in best_first if values[p] << start not in used), best_first[0])
        used.add(values[pattern] << start)
        matrix[view, client] = patterns[pattern]
        size[view] += patterns[pattern]
    return matrix
