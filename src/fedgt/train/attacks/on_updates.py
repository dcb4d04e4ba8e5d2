"""What malicious clients send in the place of the update that honest training gives, from it and what else they know."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedgt.errors import SpecError

Updates = npt.NDArray[np.floating]


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
        _require_positive("sign flip", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """The update, turned round."""
        del known, rng
        return -self.strength * own


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
        _require_positive("Gaussian noise", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """Noise of the stated norm."""
        del known
        noise = rng.standard_normal(own.shape)
        scale = self.strength * np.linalg.norm(own) / np.linalg.norm(noise)
        return (noise * scale).astype(own.dtype)


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
        _require_positive("ALIE", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """Mean less z deviations."""
        del own, rng
        sent: Updates = known.mean(axis=0) - self.strength * known.std(axis=0)
        return sent


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
        _require_positive("IPM", self.strength)

    def sent(self, own: Updates, known: Updates, *, rng: np.random.Generator) -> Updates:
        """The mean, turned round and scaled."""
        del own, rng
        sent: Updates = -self.strength * known.mean(axis=0)
        return sent


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


def _require_positive(attack: str, strength: float) -> None:
    """Refuse a strength that is not positive.

    Raises:
        SpecError: Names the attack.
    """
    if not strength > 0:
        raise SpecError(f"{attack} of strength {strength}; a positive number is needed")
