"""The prime field of the check that every client sends one vector: its numbers, their bytes, and which of two is taken."""

import secrets
from dataclasses import dataclass

from fedgt.errors import ProtocolError

_ROOM = 2**16


@dataclass(frozen=True, slots=True)
class Field:
    """The numbers modulo the Mersenne prime 2^bits - 1.

    Attributes:
        bits: 61 or 127.
    """

    bits: int

    @property
    def prime(self) -> int:
        """2^bits - 1."""
        return int(2**self.bits) - 1

    @property
    def size(self) -> int:
        """The bytes of one number: 8 or 16."""
        return (self.bits + 7) // 8

    def draw(self) -> int:
        """A uniform number, from the operating system."""
        return secrets.randbelow(self.prime)

    def uniform(self, secret: bytes) -> int:
        """The number that 32 pseudorandom bytes stand for; uniform but for one part in 2^129."""
        return int.from_bytes(secret, "big") % self.prime

    def to_bytes(self, number: int) -> bytes:
        """The one form in which a number travels."""
        return (number % self.prime).to_bytes(self.size, "big")

    def from_bytes(self, payload: bytes | memoryview) -> int:
        """Read `to_bytes`, and nothing else.

        Raises:
            ProtocolError: If these are not the bytes of a number of this field.
        """
        number = int.from_bytes(payload, "big")
        if len(payload) != self.size or number >= self.prime:
            raise ProtocolError(f"{len(payload)} bytes are no number modulo 2^{self.bits} - 1")
        return number


SMALL, LARGE = Field(61), Field(127)


def field_for(reach: int) -> Field:
    """The field in which sums whose entries are at most `reach` are told apart.

    The prime is at least 4 * 2^16 times the reach. Two sums over the same clients differ by less than half the prime, and
    so does every combination of sums whose integer coefficients add up to 2^17 at most: what is zero in the field is zero.

    Args:
        reach: The largest magnitude of an entry of an opened sum, below 2^63.
    """
    return SMALL if 4 * _ROOM * reach < SMALL.prime else LARGE
