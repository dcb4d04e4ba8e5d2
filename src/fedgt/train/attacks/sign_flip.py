"""Sign flip: the malicious client walks away from where its data point."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.train.attacks.on_updates import Updates, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """Sends -strength times its own update (Li et al. 2019, "RSA: Byzantine-robust stochastic aggregation methods").

    Attributes:
        strength: Positive; 1 keeps the length of the update, so that its norm gives nothing away.

    Raises:
        SpecError: If the strength is not positive.

    Example:
        >>> import numpy as np
        >>> own = np.array([1.0, -2.0])
        >>> SignFlip(strength=2.0).sent(own, own[None], rng=np.random.default_rng(0)).tolist()
        [-2.0, 4.0]
    """

    name: ClassVar[str] = "sign-flip"
    strength: float = 1.0

    def __post_init__(self) -> None:
        """Check the strength."""
        require_positive("sign flip", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """The update, turned round."""
        del known, rng
        return -self.strength * own
