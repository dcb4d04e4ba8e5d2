"""How often one honest client stands far from all others, learnt from pairs of labels that a hypothesis does not touch.

Where clients own few of the classes, one honest client may move the margin of two labels far by itself, and looks like an
attacker of this pair. It then does so in many pairs, an attacker in few. So each pair says how likely it is that nobody, or
some one client, stands out in it, and the pairs without a label of the hypothesis say how often that happens.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedgt.evidence.by_margins.hypotheses import Hypothesis
from fedgt.types import FloatArray

SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""How many of the pairs may have a client that stands far from all others."""

SIZES = (1.5, 3.0, 6.0)
"""How far it may stand, in deviations of the others."""


def log_density(shifts: FloatArray, hypotheses: Sequence[Hypothesis]) -> FloatArray:
    """float64[hypotheses]: log-density of what is observed if nobody is malicious, up to terms that all sets share.

    Args:
        shifts: float64[contrasts, clients]; see `Contrasts`.
        hypotheses: With their share and size of lone clients.
    """
    share, size = (np.array([getattr(one, name) for one in hypotheses]) for name in ("lone_share", "lone_size"))
    alone = _with_a_lone_client(shifts, hypotheses, size)
    with np.errstate(divide="ignore"):
        mixed: FloatArray = np.logaddexp(np.log1p(-share) + _alike(hypotheses), np.log(share) + alone)
    return mixed


def with_lone_clients(shifts: FloatArray, flips: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The same hypotheses, each with the share and size of lone clients that is most likely by the others.

    Args:
        shifts: float64[contrasts, clients].
        flips: Hypotheses about pairs of labels, each pair as often as any other.
    """
    labels, of = np.unique([one.labels for one in flips], axis=0, return_inverse=True)
    of = of.reshape(-1)
    grid = [(0.0, SIZES[0]), *((share, size) for share in SHARES[1:] for size in SIZES)]
    alike = _alike(flips)
    alone = {size: _with_a_lone_client(shifts, flips, np.full(len(flips), size)) for size in SIZES}
    each = np.stack(
        [
            alike if not share else np.logaddexp(np.log1p(-share) + alike, np.log(share) + alone[size])
            for share, size in grid
        ],
        axis=1,
    )
    # Mean over the scales that a pair has, then the sum over all pairs that have neither label.
    pair = np.zeros((len(labels), len(grid)))
    np.add.at(pair, of, each * len(labels) / len(flips))
    with_label = np.zeros((int(labels.max()) + 1, len(grid)))
    for side in (0, 1):
        np.add.at(with_label, labels[:, side], pair)
    row_of = {(s, t): row for row, (s, t) in enumerate(labels.tolist())}
    mirrored = np.stack([pair[row_of[t, s]] if (t, s) in row_of else np.zeros(len(grid)) for s, t in labels.tolist()])
    others = pair.sum(axis=0) - with_label[labels[:, 0]] - with_label[labels[:, 1]] + pair + mirrored
    best = others.argmax(axis=1)[of]
    return [
        replace(one, lone_share=grid[chosen][0], lone_size=grid[chosen][1])
        for one, chosen in zip(flips, best.tolist(), strict=True)
    ]


def _units(hypotheses: Sequence[Hypothesis]) -> tuple[FloatArray, FloatArray]:
    """float64[hypotheses, contrasts] in deviations of an honest client, and float64[hypotheses] degrees of freedom."""
    return np.stack([one.observed / one.scale for one in hypotheses]), np.array([one.freedom for one in hypotheses])


def _alike(hypotheses: Sequence[Hypothesis]) -> FloatArray:
    units, freedom = _units(hypotheses)
    result: FloatArray = -(freedom + units.shape[1]) / 2 * np.log1p((units**2).sum(axis=1) / freedom)
    return result


def _with_a_lone_client(shifts: FloatArray, hypotheses: Sequence[Hypothesis], size: FloatArray) -> FloatArray:
    """float64[hypotheses]: the same with one client, any of them, whose deviation is larger by this factor."""
    units, freedom = _units(hypotheses)
    wide = 1.0 + size[:, None] ** 2 * (shifts**2).sum(axis=0)
    taken = size[:, None] ** 2 * (units @ shifts) ** 2 / wide
    left = np.maximum((units**2).sum(axis=1, keepdims=True) - taken, 0.0)
    terms = -0.5 * np.log(wide) - (freedom[:, None] + units.shape[1]) / 2 * np.log1p(left / freedom[:, None])
    peak = terms.max(axis=1, keepdims=True)
    result: FloatArray = peak[:, 0] + np.log(np.exp(terms - peak).mean(axis=1))
    return result
