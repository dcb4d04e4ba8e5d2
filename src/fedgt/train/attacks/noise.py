"""Gaussian noise: the malicious client sends something that its data never said."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.train.attacks.on_updates import Updates, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianNoise:
    """Sends noise of `strength` times the norm of its own update, independent of every other client's.

    Blanchard et al. 2017 ("Machine learning with adversaries") send Gaussian noise of a fixed variance; here its size is
    relative, so that one strength means the same for every model.

    Attributes:
        strength: Positive; 5 is hardly ever missed by who sees single updates.

    Raises:
        SpecError: If the strength is not positive.

    Example:
        >>> import numpy as np
        >>> own = np.ones(10_000)
        >>> noise = GaussianNoise(strength=5.0).sent(own, own[None], rng=np.random.default_rng(0))
        >>> round(float(np.linalg.norm(noise) / np.linalg.norm(own)), 6)
        5.0
    """

    name: ClassVar[str] = "gaussian"
    strength: float = 5.0

    def __post_init__(self) -> None:
        """Check the strength."""
        require_positive("Gaussian noise", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """Noise of the stated norm."""
        del known
        noise = rng.standard_normal(own.shape)
        scale = self.strength * np.linalg.norm(own) / np.linalg.norm(noise)
        return (noise * scale).astype(own.dtype)
