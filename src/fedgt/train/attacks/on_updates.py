"""What an attack on the update is: a function of the update that honest training gives, and of what else is known."""

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError

Updates = npt.NDArray[np.floating]


def require_positive(attack: str, strength: float) -> None:
    """Refuse a strength that is not positive.

    Raises:
        SpecError: Names the attack.
    """
    if not strength > 0:
        raise SpecError(f"{attack} of strength {strength}; a positive number is needed")


@runtime_checkable
class UpdateAttack(Protocol):
    """Changes the update of one malicious client after it trained honestly."""

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """What the client sends instead of its update.

        Args:
            own: float[parameters], the trained model less the model that it started from.
            known: float[clients, parameters], the honest updates of this round that the attackers know; at least one.
            rng: The client's own source of randomness in this round.

        Returns:
            float[parameters].
        """
        ...
