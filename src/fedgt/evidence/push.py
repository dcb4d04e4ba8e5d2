"""How far suspects go along the way of everybody else: what no honest client does, whatever classes it owns.

Clients that own other classes differ in many directions, but not much along the mean update. One whose samples teach the
others nothing goes nowhere along it. Whoever sends its update five times goes more than three times as
far, and who turns it round goes backwards. Margins do not show that: a boosted backdoor makes the
classes look unevenly owned, so that margins were compared, which say nothing about a trigger.
"""

from fedgt.evidence.contrast import contrasts
from fedgt.types import BoolArray, FloatArray

NORMAL = (-2.0, 1.5)
"""From as far backwards to two and a half times as far. Honest suspects went from -1.57 to -0.09 on 80 honest federations of
seeds 310 to 325, attackers who send their update five times from 1.58 to 3.15 on seeds 300 to 303."""


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
