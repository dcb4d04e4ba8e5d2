"""Several tests of the weights of the same clients: what comes again is not new evidence.

What a client differs by has a part that is the same in every round, rho of its variance, and a part that is drawn anew. The
contrasts of the rounds r and s then have the covariance rho N_r N_s^T (see `several_tests`). If clients are of one
population rho is small, and tests add up. If they differ by nature it is 0.65 to 0.83, and the same rows say the same thing
again: three tests of them are worth little more than one.

With s_j what client j moves in the contrasts of all tests, and V(rho) their covariance, the tests hold s_j^T V^-1 s_j of
information about it instead of |s_j|^2. The quotient, mean of all clients, is the part of the evidence that is new. The
evidence of all tests is raised to this power. Nobody knows rho: its posterior is read off the contrasts, without the
strongest line of each test, because attackers come again as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.types import FloatArray, frozen

COMES_AGAIN = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Values of rho, each as likely as the others beforehand."""

_BUCKETS = 256
_SIGNS = 7  # the seed of the sketch: features of all tests must be folded alike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Look:
    """What is kept of the contrasts of a test, to see what comes again.

    Attributes:
        contrasts: float64[contrasts, buckets]: scalar products between those of two tests are those of all features, on
            average.
        noise: float64[contrasts, clients]; see `Contrasts`.
        shifts: float64[contrasts, clients]; see `Contrasts`.
    """

    contrasts: FloatArray
    noise: FloatArray
    shifts: FloatArray

    def __post_init__(self) -> None:
        """Freeze."""
        for name in ("contrasts", "noise", "shifts"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    def without_strongest_line(self) -> "Look":
        """The contrasts at right angles to the strongest line through them."""
        others = np.linalg.eigh(self.contrasts @ self.contrasts.T).eigenvectors[:, :-1].T
        return Look(contrasts=others @ self.contrasts, noise=others @ self.noise, shifts=others @ self.shifts)


def folded(rows: FloatArray) -> FloatArray:
    """float64[rows, buckets] of float64[rows, features]: features with random signs, added up in few buckets.

    A count sketch: it keeps scalar products on average, and costs one pass (Charikar, Chen, Farach-Colton 2002, Finding
    frequent items in data streams).
    """
    features = rows.shape[1]
    if features <= _BUCKETS:
        return rows.copy()
    signs = np.random.default_rng(_SIGNS).choice(np.array([-1.0, 1.0]), size=features)
    whole = features // _BUCKETS * _BUCKETS
    made = np.empty((len(rows), _BUCKETS))
    for number, row in enumerate(rows):  # one at a time: a layer of a thousand classes is large
        signed = row * signs
        made[number] = signed[:whole].reshape(-1, _BUCKETS).sum(axis=0)
        made[number, : features - whole] += signed[whole:]
    return made


def part_that_is_new(looks: Sequence[Look], effective: float) -> float:
    """By which power the evidence of all tests together is raised: 1 where nothing comes again, 1 / tests where all does.

    Args:
        looks: Of two tests or more of the same clients.
        effective: D, how many features vary independently.
    """
    beside = [look.without_strongest_line() for look in looks]
    logs = np.array([_log_likelihood(beside, rho, effective) for rho in COMES_AGAIN])
    chances = np.exp(logs - logs.max())
    new: float = float(chances @ [_new(looks, rho) for rho in COMES_AGAIN] / chances.sum())
    return new


def _covariance(looks: Sequence[Look], rho: float) -> FloatArray:
    noise = np.concatenate([look.noise for look in looks])
    covariance: FloatArray = rho * noise @ noise.T + (1.0 - rho) * np.eye(len(noise))
    return covariance


def _log_likelihood(looks: Sequence[Look], rho: float, effective: float) -> float:
    """Of the contrasts as noise, its scale integrated out."""
    contrasts = np.concatenate([look.contrasts for look in looks])
    if not contrasts.any():
        return 0.0
    root = np.linalg.cholesky(_covariance(looks, rho))
    energy = float((np.linalg.solve(root, contrasts) ** 2).sum())
    return -effective / 2.0 * (2.0 * float(np.log(np.diag(root)).sum()) + len(root) * float(np.log(energy)))


def _new(looks: Sequence[Look], rho: float) -> float:
    shifts = np.concatenate([look.shifts for look in looks])
    apart = np.einsum("kj,kj->j", shifts, shifts)
    together = np.einsum("kj,kj->j", shifts, np.linalg.solve(_covariance(looks, rho), shifts))
    moved = apart > 0
    return float(np.mean(together[moved] / apart[moved])) if moved.any() else 1.0
