"""Which 32 bytes can be somebody's Ed25519 public key: a point of the curve in its canonical form, not of small order.

For a key of small order anybody can make signatures, and one signature can hold for many messages: who registers such a key
lets everybody speak in that name. Verification does not look (RFC 8032, section 5.1.7, leaves it to the application).
"""

from fedgt.errors import SpecError

PUBLIC_KEY_BYTES = 32

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_Y_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
# y and -y of the eight points P with 8 P = 0: orders 1 and 2, order 4, order 8. x follows but for its sign.
_SMALL_ORDER = frozenset(value for y in (1, 0, _Y_OF_ORDER_8) for value in (y, -y % _P))


def require_public_key(key: object, owner: str) -> bytes:
    """The key, if signatures of it can be its owner's only.

    Raises:
        SpecError: If it is not 32 bytes, no point of the curve, not its canonical form, or of small order.
    """
    if not isinstance(key, bytes) or len(key) != PUBLIC_KEY_BYTES:
        raise SpecError(f"{owner} has a public key that is not {PUBLIC_KEY_BYTES} bytes")
    number = int.from_bytes(key, "little")
    y, sign = number & (2**255 - 1), number >> 255
    if y % _P in _SMALL_ORDER:
        raise SpecError(
            f"{owner} has a public key of small order, for which anybody can sign: make one with fedgt keygen"
        )
    if y >= _P:
        raise SpecError(f"{owner} has a public key in a form that is not the canonical one: make one with fedgt keygen")
    if not _on_curve(y):
        raise SpecError(
            f"{owner} has a public key that is no point of the curve (mistyped?): sign bit {sign}, y = {y:x}"
        )
    return key


def _on_curve(y: int) -> bool:
    """Whether -x^2 + y^2 = 1 + d x^2 y^2 has a solution: whether (y^2 - 1) / (d y^2 + 1) is a square."""
    square = y * y % _P
    return pow((square - 1) * (_D * square + 1), (_P - 1) // 2, _P) <= 1
