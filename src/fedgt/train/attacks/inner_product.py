"""IPM, inner product manipulation: the sum of all updates is turned against the honest ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.train.attacks.on_updates import Updates, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerProduct:
    """Sends -strength times the mean of the known updates; all attackers send the same.

    From Xie, Koyejo and Gupta 2020, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation".

    Attributes:
        strength: Epsilon of the paper, positive. Below 1 the update is smaller than honest ones and hides among them; with
            m attackers of n clients the mean changes its sign from (n - m) / m.

    Raises:
        SpecError: If the strength is not positive.

    Example:
        >>> import numpy as np
        >>> known = np.array([[1.0, 4.0], [3.0, 4.0]])
        >>> InnerProduct(strength=0.5).sent(known[0], known, rng=np.random.default_rng(0)).tolist()
        [-1.0, -2.0]
    """

    name: ClassVar[str] = "ipm"
    strength: float = 0.5

    def __post_init__(self) -> None:
        """Check the strength."""
        require_positive("IPM", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """The mean, turned round and scaled."""
        del own, rng
        sent: Updates = -self.strength * known.mean(axis=0)
        return sent
