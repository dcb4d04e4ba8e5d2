"""How far suspects go along the way of everybody else: what no honest client does, whatever classes it owns.

Clients that own other classes differ in many directions, but not much along the mean update. One whose samples teach the
others nothing goes nowhere along it. Whoever sends its update five times goes more than three times as
far, and who turns it round goes backwards. Margins do not show that: a boosted backdoor makes the
classes look unevenly owned, so that margins were compared, which say nothing about a trigger.
"""

from fedgt.evidence.contrast import contrasts
from fedgt.types import BoolArray, FloatArray

BACKWARDS, AHEAD = -2.0, 0.15
"""Suspects that go as far backwards as the others go forwards, and so much further than their samples would carry them, are
not honest clients of other classes. Those went from -1.57 to -0.01, in honest federations of seeds 300 to 335; attackers
with a backdoor who send their update twice from 0.26 on, and five times from 1.58 on, on seeds 300 to 303 and 320 to 323."""


def beyond_honest(push: float, samples: FloatArray, suspects: BoolArray) -> bool:
    """Whether suspects go along the mean update as no honest client does, whatever classes it owns.

    Clients with more samples make more steps, and get further with diminishing returns, as the square root (`contrasts`).

    Args:
        push: `push_along_mean` of them.
        samples: float64[clients], sample counts.
        suspects: bool[clients].

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import beyond_honest
        >>> suspects = np.arange(15) < 3
        >>> beyond_honest(0.3, np.full(15, 100.0), suspects), beyond_honest(-0.3, np.full(15, 100.0), suspects)
        (True, False)
        >>> beyond_honest(0.3, np.where(suspects, 200.0, 100.0), suspects)  # they have twice as many samples
        False
    """
    more = max(1.0, float(samples[suspects].max() / samples[~suspects].mean()))
    return push <= BACKWARDS or push >= more**0.5 - 1.0 + AHEAD


def push_along_mean(updates: FloatArray, weights: FloatArray, samples: FloatArray, suspects: BoolArray) -> float:
    """By how much suspects differ from the mean update of the others, along it, in units of it.

    0 is as far as the others, -1 nowhere, 1 twice as far.

    Args:
        updates: float64[groups, features], the mean update of each group.
        weights: float64[groups, clients], the real weight of each client in each sum.
        samples: float64[clients], sample counts.
        suspects: bool[clients].

    Returns:
        0 where the groups do not show it, or the others do not move.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import push_along_mean
        >>> rows, suspects = named_design("graded-15x10-b").matrix.astype(float), np.arange(15) < 3
        >>> clients = np.where(suspects, 5.0, 1.0)[:, None] * np.ones((15, 20))  # three send five times the update
        >>> means = rows @ clients / rows.sum(axis=1, keepdims=True)
        >>> round(push_along_mean(means, rows, np.ones(15), suspects), 6)
        4.0
    """
    parts = contrasts(weights, samples)
    shift = parts.shifts[:, suspects].sum(axis=1)
    length = float(shift @ shift)
    if not length > 0:
        return 0.0
    away = shift @ (parts.transform @ updates) / length
    shares = weights[:, suspects].sum(axis=1) / weights.sum(axis=1)
    others = (updates - shares[:, None] * away).mean(axis=0)
    size = float(others @ others)
    return float(away @ others) / size if size > 0 else 0.0
