"""ALIE, "a little is enough": a push that hides within the spread of honest updates."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedgt.train.attacks.on_updates import Updates, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class LittleIsEnough:
    """Sends the mean of the known updates less `strength` standard deviations in every parameter.

    All attackers send the same. From Baruch et al. 2019, "A little is enough: circumventing defenses for distributed
    learning"; the deviation is that of the known updates, and 0 where only one is known.

    Attributes:
        strength: z of the paper, positive; 1.5 is the usual one.

    Raises:
        SpecError: If the strength is not positive.

    Example:
        >>> import numpy as np
        >>> known = np.array([[1.0, 4.0], [3.0, 4.0]])
        >>> LittleIsEnough(strength=1.5).sent(known[0], known, rng=np.random.default_rng(0)).tolist()
        [0.5, 4.0]
    """

    name: ClassVar[str] = "alie"
    strength: float = 1.5

    def __post_init__(self) -> None:
        """Check the strength."""
        require_positive("ALIE", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """Mean less z deviations."""
        del own, rng
        sent: Updates = known.mean(axis=0) - self.strength * known.std(axis=0)
        return sent
