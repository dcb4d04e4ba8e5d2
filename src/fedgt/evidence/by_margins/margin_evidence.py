"""Graded evidence from validation margins: for clients that differ by nature, such as hospitals.

Under a hypothesis a malicious client raises a statistic (`margin_hypotheses`) by theta > 0, honest clients scatter about a
common mean with a deviation that was learnt, and the group means mix them with known shares. Given the learnt scale, theta
in units of it and the spread of the strengths, the contrasts are multivariate t under every set of clients, with as many
degrees of freedom as the scale deserves; theta and the spread are averaged over a grid. Where nobody is malicious one honest
client may stand far from the others (`lone`). The hypotheses are averaged with their prior probabilities: looking at many
labels is paid for.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedgt.evidence.by_margins.honest_account import HonestAccount
from fedgt.evidence.by_margins.hypotheses import Hypothesis
from fedgt.evidence.by_margins.lone import log_density
from fedgt.evidence.contrast import moved
from fedgt.evidence.harm import Damage
from fedgt.types import BoolArray, FloatArray, frozen

STRENGTHS = (3.0, 8.0, 20.0)
"""How far a malicious client raises the statistic, in deviations of an honest one."""

SPREADS = (0.3, 1.0)
"""Relative deviation of the strengths: clients own more or fewer samples of the label under attack."""

_WORTH_WHILE = 0.5
"""Hypotheses whose statistic exceeds what honest clients make by less than this (in log-energy) are not looked at."""

_MOST = 64
"""Hypotheses that are scored set by set, those that could speak most clearly; of ten classes more are hardly worth it."""

_BATCH = 2048


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarginEvidence:
    """What the margins of one test round say about sets of malicious clients. Implements `SetEvidence`.

    Attributes:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        noise: float64[contrasts, clients]; see `Contrasts`.
        hypotheses: All of them.
        damage: The losses, by which the report names the labels that get worse.
        power: To which likelihoods are raised, where several tests say partly the same.
        account: Whether honest clients could have sent the sums; None where the classes are not known well enough.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import margin_screen
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> means = np.tensordot(matrix / matrix.sum(axis=1, keepdims=True), rng.normal(size=(15, 6, 6)), axes=1)
        >>> losses = rng.normal(0.3, 0.01, size=(10, 6))
        >>> found = margin_screen(means, losses, classes=range(6), weights=matrix, erased=[False] * 10)
        >>> nobody = np.zeros((1, 15), dtype=bool)
        >>> found.evidence.log_likelihood(nobody).tolist()
        [0.0]
    """

    shifts: FloatArray
    noise: FloatArray
    hypotheses: tuple[Hypothesis, ...]
    damage: Damage
    power: float = 1.0
    account: HonestAccount | None = None

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "shifts", frozen(self.shifts, np.float64))
        object.__setattr__(self, "noise", frozen(self.noise, np.float64))

    @property
    def strongest(self) -> Hypothesis:
        """The hypothesis whose statistic exceeds what honest clients make most, in units of the error of that scale."""
        return max(self.hypotheses, key=lambda one: one.excess * one.freedom**0.5)

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log-likelihood ratio of each set being malicious against nobody; 0 if it moves no contrast."""
        worth = [one for one in self.hypotheses if one.excess >= _WORTH_WHILE] or [self.strongest]
        speaks = np.array([one.log_prior for one in worth]) - log_density(self.shifts, worth)
        order = np.argsort(-speaks, kind="stable")[:_MOST].tolist()
        chosen_ones = [worth[number] for number in order]
        result = np.zeros(len(sets))
        some = np.flatnonzero(moved(self.shifts, sets).able)
        for start in range(0, len(some), _BATCH):
            chosen = some[start : start + _BATCH]
            result[chosen] = self._ratios(sets[chosen].astype(np.float64), chosen_ones, speaks[order])
        return self.power * result

    def raised(self, power: float) -> "MarginEvidence":
        """The same evidence with its likelihoods raised to a power, once."""
        return replace(self, power=power)

    def _ratios(self, members: FloatArray, hypotheses: list[Hypothesis], against_nobody: FloatArray) -> FloatArray:
        """float64[B]: averaged over the hypotheses, strengths and spreads.

        Args:
            members: float64[B, clients].
            hypotheses: Those that are averaged.
            against_nobody: float64[hypotheses]: less the log-density of each where nobody is malicious, with its prior.
        """
        k = len(self.shifts)
        along = members @ self.shifts.T
        outer = np.einsum("kj,lj->jkl", self.shifts, self.shifts).reshape(self.shifts.shape[1], -1)
        spread = (members @ outer).reshape(-1, k, k)
        total = np.full(len(members), -np.inf)
        observed = np.stack([one.observed / one.scale for one in hypotheses], axis=1)  # [k, hypotheses]
        freedom = np.array([one.freedom for one in hypotheses])
        for strength in STRENGTHS:
            for relative in SPREADS:
                root = np.linalg.cholesky(np.eye(k) + (relative * strength) ** 2 * spread)
                inverse = np.linalg.inv(root)
                determinant = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
                expected = np.einsum("bkl,bl->bk", inverse, strength * along)
                away = (inverse.reshape(-1, k) @ observed).reshape(len(members), k, -1) - expected[:, :, None]
                distance = np.einsum("bkh,bkh->bh", away, away)
                terms = against_nobody - (freedom + k) / 2 * np.log1p(distance / freedom) - determinant[:, None]
                peak = terms.max(axis=1)
                part = peak + np.log(np.exp(terms - peak[:, None]).sum(axis=1))
                total = np.logaddexp(total, part)
        result: FloatArray = total - np.log(len(STRENGTHS) * len(SPREADS))
        return result
