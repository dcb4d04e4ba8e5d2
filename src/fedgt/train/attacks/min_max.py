"""Min-Max: the largest push that is no farther from honest updates than these are from each other."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.train.attacks.on_updates import Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMax:
    """Sends the mean of the known updates, moved against their deviations as far as distances allow.

    From Shejwalkar and Houmansadr 2021, "Manipulating the Byzantine", with the direction "inverse standard deviation". The
    distance to every known update is at most the largest distance between two of them. The paper searches the length; here
    it is the smallest of the roots of one quadratic equation for each known update. Where one update is known, it is sent.

    Example:
        >>> import numpy as np
        >>> known = np.array([[0.0, 0.0], [2.0, 0.0]])
        >>> MinMax().sent(known[0], known, rng=np.random.default_rng(0)).round(6).tolist()
        [0.0, 0.0]
    """

    name: ClassVar[str] = "min-max"

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """The mean, moved as far as it stays unsuspicious."""
        del own, rng
        centre, direction = known.mean(axis=0), -known.std(axis=0)
        square = float(direction @ direction)
        if square == 0:
            return np.array(centre)
        away = centre - known  # ||away_i + gamma direction||^2 <= widest for all i
        products = known @ known.T
        norms = np.diag(products)
        widest = float((norms[:, None] + norms[None, :] - 2 * products).max())
        half = away @ direction / square
        rest = (np.einsum("ij,ij->i", away, away) - widest) / square
        gamma = float((-half + np.sqrt(np.maximum(half**2 - rest, 0.0))).min())
        sent: Updates = (centre + gamma * direction).astype(known.dtype)
        return sent
