"""Free rider: a client that takes the model and contributes nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.errors import SpecError
from fedgt.train.attacks.on_updates import Updates


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRider:
    """Sends the model that it received, with some noise if it disguises itself.

    From Fraboni, Vidal and Lorenzi 2021, "Free-rider attacks on model aggregation in federated learning".

    Attributes:
        strength: Norm of the noise in units of an honest update's; 0 is the plain free rider.

    Raises:
        SpecError: If the strength is negative.

    Example:
        >>> import numpy as np
        >>> own = np.array([1.0, -2.0])
        >>> abs(FreeRider().sent(own, own[None], rng=np.random.default_rng(0))).tolist()
        [0.0, 0.0]
    """

    name: ClassVar[str] = "free-rider"
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength."""
        if not self.strength >= 0:
            raise SpecError(f"free rider with noise of strength {self.strength}; 0 or a positive number is needed")

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """Nothing, or noise."""
        del known
        noise = rng.standard_normal(own.shape)
        return (noise * (self.strength * np.linalg.norm(own) / np.linalg.norm(noise))).astype(own.dtype)
