"""A key for which anybody can sign is nobody's: it is refused wherever keys are read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgt.errors import SpecError
from fedgt.planning.plan_file import Plan
from fedgt.secagg import Identity, Registry, add_to_registry, read_registry
from fedgt.secagg.identity import verify
from fedgt.secagg.public_keys import require_public_key

# The curve, slowly -------------------------------------------------------------------------------------------------

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int]


def added(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def times(factor: int, point: Point) -> Point:
    total = (0, 1)
    for bit in bin(factor)[2:]:
        total = added(total, total)
        total = added(total, point) if bit == "1" else total
    return total


def root(y: int) -> int | None:
    """x of a point with this y, if there is one."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return x if (x * x - square) % P == 0 else None


def encoded(y: int, sign: int) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


def torsion() -> set[Point]:
    """All points with 8 P = 0: the multiples of one that is left when the large order is taken out."""
    y = 2
    while True:
        x = root(y)
        if x is not None:
            found = {times(k, times(ORDER, (x, y))) for k in range(8)}
            if len(found) == 8:
                return found
        y += 1


def every_encoding(point: Point) -> set[bytes]:
    """The canonical one, y + p where it fits into 255 bits, and the wrong sign of x = 0."""
    x, y = point
    signs = {0, 1} if x == 0 else {x & 1}
    return {encoded(value, sign) for value in (y, y + P) if value < 2**255 for sign in signs}


SMALL = sorted(code for point in torsion() for code in every_encoding(point))


def test_there_are_eight_points_of_small_order_with_fourteen_encodings() -> None:
    assert len(torsion()) == 8
    assert all(times(8, point) == (0, 1) for point in torsion())
    assert len(SMALL) == 14


# The attack --------------------------------------------------------------------------------------------------------


def test_with_the_key_of_order_one_a_stranger_signs_every_message() -> None:
    """What registering such a key would mean: R = identity and s = 0 is a signature on everything."""
    signature = encoded(1, 0) + bytes(32)
    for message in (b"the survivors are a and b", b"the survivors are b and c"):
        verify(encoded(1, 0), "survivors", message, signature, signer="anybody")


@pytest.mark.parametrize("key", SMALL, ids=[code.hex()[:12] + code.hex()[-2:] for code in SMALL])
def test_a_key_of_small_order_is_refused_in_every_form(key: bytes) -> None:
    with pytest.raises(SpecError, match="small order"):
        require_public_key(key, "client a")
    honest = Identity.generate("b").public
    with pytest.raises(SpecError, match="client a has a public key of small order"):
        Registry(server=honest, clients={"a": key})
    with pytest.raises(SpecError, match="the server has a public key of small order"):
        Registry(server=key, clients={"b": honest})


def test_a_form_that_is_not_canonical_and_bytes_that_are_no_point_are_refused() -> None:
    above = [y for y in range(19) if root(y) is not None and y > 1]
    for y in above:
        with pytest.raises(SpecError, match="not the canonical one"):
            require_public_key(encoded(y + P, 0), "client a")
        require_public_key(encoded(y, 1), "client a")
    for y in (y for y in range(2, 40) if root(y) is None):
        with pytest.raises(SpecError, match="no point of the curve"):
            require_public_key(encoded(y, 0), "client a")
    for rubbish in (b"", bytes(31), bytes(33), "00" * 32, None):
        with pytest.raises(SpecError, match="not 32 bytes"):
            require_public_key(rubbish, "client a")


@given(st.binary(min_size=32, max_size=32))
def test_the_quick_check_says_what_the_slow_curve_says(key: bytes) -> None:
    y = int.from_bytes(key, "little") & (2**255 - 1)
    right = y < P and root(y) is not None and key not in SMALL
    try:
        require_public_key(key, "client a")
        assert right
    except SpecError:
        assert not right


def test_keys_that_are_drawn_are_taken() -> None:
    for _ in range(50):
        public = Identity.generate("a").public
        assert require_public_key(public, "client a") == public


# Every reader ------------------------------------------------------------------------------------------------------


def test_no_registry_file_and_no_plan_takes_such_a_key(tmp_path: Path) -> None:
    path = tmp_path / "consortium.toml"
    add_to_registry(path, Identity.generate("server"), server=True)
    honest = path.read_text()
    for key in SMALL:
        path.write_text(honest + f'a = "{key.hex()}"\n')
        with pytest.raises(SpecError, match="small order"):
            read_registry(path)
        with pytest.raises(SpecError, match="small order"):
            add_to_registry(path, Identity.generate("b"), server=False)
        with pytest.raises(ValueError, match="small order"):
            Plan.model_validate(
                {
                    "evidence": "binary",
                    "design": {"name": "d", "source": "s", "matrix": ((1, 1, 0), (0, 1, 1))},
                    "privacy": {"promised": 1, "r": 1, "exact": True, "combination": {}, "clients": (0,)},
                    "strategy": {"largest": 1},
                    "keys": {"a": key.hex()},
                }
            )
