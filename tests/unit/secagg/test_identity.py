"""Identities, the registry, and their files."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgt.errors import SignatureError, SpecError
from fedgt.secagg import (
    ClientSession,
    Credentials,
    FixedPoint,
    Identity,
    Registry,
    RoundPlan,
    ServerSession,
    TensorSpec,
    add_to_registry,
    read_policy,
    read_private_key,
    read_registry,
    write_private_key,
)
from fedgt.secagg.identity import verify

SERVER, ONE, TWO = (Identity.generate(name) for name in ("server", "one", "two"))


def test_a_signature_is_for_one_use_one_message_and_one_key() -> None:
    signature = ONE.sign("keys", b"message")
    verify(ONE.public, "keys", b"message", signature, signer="one")
    for public, use, message in (
        (ONE.public, "frame", b"message"),
        (ONE.public, "keys", b"massage"),
        (TWO.public, "keys", b"message"),
        (b"short", "keys", b"message"),
    ):
        with pytest.raises(SignatureError, match="of one is not by its registered key"):
            verify(public, use, message, signature, signer="one")


def test_the_same_participant_cannot_be_registered_twice() -> None:
    """Case 37: two ids with one identity key."""
    with pytest.raises(SpecError, match="client one and client again share one public key"):
        Registry(server=SERVER.public, clients={"one": ONE.public, "again": ONE.public})
    with pytest.raises(SpecError, match="the server and client one share"):
        Registry(server=ONE.public, clients={"one": ONE.public})
    with pytest.raises(SpecError, match="not 32 bytes"):
        Registry(server=SERVER.public, clients={"one": b"short"})
    with pytest.raises(SpecError, match="printable"):
        Registry(server=SERVER.public, clients={"": ONE.public})


def test_credentials_must_be_in_the_registry_and_are_not_exchanged() -> None:
    registry = Registry(server=SERVER.public, clients={"one": ONE.public})
    with pytest.raises(SpecError, match="not the one that the registry names"):
        Credentials(identity=TWO, registry=registry)
    with pytest.raises(SpecError, match="not the one that the registry names"):
        Credentials(identity=Identity(name="two", key=ONE.key), registry=registry)
    assert Credentials(identity=SERVER, registry=registry).serves
    own = Credentials(identity=ONE, registry=registry)
    assert not own.serves
    with pytest.raises(SpecError, match="take its own"):
        ClientSession("two", credentials=own)
    with pytest.raises(SpecError, match="take its own"):
        ClientSession("server", credentials=Credentials(identity=SERVER, registry=registry))
    plan = RoundPlan(
        run="run",
        round=0,
        purpose="test",
        groups=(("one",),),
        thresholds=(1,),
        weights={"one": 1},
        encoding=FixedPoint(clip=1.0, fraction_bits=8, ring_bits=32),
        tensors=(TensorSpec(name="w", shape=(1,)),),
    )
    with pytest.raises(SpecError, match="take its own"):
        ServerSession(plan, credentials=own)


def test_a_private_key_is_never_shown() -> None:
    assert "Private" not in repr(ONE)
    assert "key" not in repr(Credentials(identity=SERVER, registry=Registry(server=SERVER.public, clients={})).identity)


def test_a_key_file_is_private_never_overwritten_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "one.pem"
    write_private_key(path, ONE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert read_private_key(path, "one").public == ONE.public
    with pytest.raises(SpecError, match="never overwritten"):
        write_private_key(path, TWO)
    assert read_private_key(path, "one").public == ONE.public
    with pytest.raises(SpecError, match="cannot be written"):
        write_private_key(tmp_path / "nowhere" / "key.pem", TWO)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.pem"
    write_private_key(path, ONE)
    path.chmod(0o640)
    with pytest.raises(SpecError, match="chmod 600"):
        read_private_key(path, "one")


def test_a_key_file_with_something_else_is_refused(tmp_path: Path) -> None:
    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, message in ((b"rubbish", "no private key in PEM"), (other, "Ed25519 key is needed")):
        path = tmp_path / "key.pem"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(SpecError, match=message):
            read_private_key(path, "one")
    with pytest.raises(SpecError, match="cannot be read"):
        read_private_key(tmp_path / "missing.pem", "one")


def test_a_registry_grows_one_identity_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "registry.toml"
    add_to_registry(path, ONE, server=False)
    with pytest.raises(SpecError, match="no server key"):
        read_registry(path)
    add_to_registry(path, SERVER, server=True)
    add_to_registry(path, TWO, server=False)
    assert read_registry(path) == Registry(server=SERVER.public, clients={"one": ONE.public, "two": TWO.public})
    before = path.read_bytes()
    for identity, server, message in (
        (Identity.generate("one"), False, "has a client 'one' already"),
        (Identity(name="other", key=ONE.key), False, "share one public key"),
        (Identity.generate("server"), True, "has a server key already"),
    ):
        with pytest.raises(SpecError, match=message):
            add_to_registry(path, identity, server=server)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["registry.toml"]


@pytest.mark.parametrize(
    "content",
    [
        'server = "00"\n[clients]',
        'server = "zz"',
        "server = 5",
        "server = [1]",
        "[clients.one]\nkey = 1",
        'clients = "one"',
        "more = 1",
        '[clients]\none = "00"\none = "00"',
        "\x00",
        "[" * 10_000,
    ],
)
def test_a_registry_file_with_anything_else_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "registry.toml"
    path.write_text(content)
    with pytest.raises(SpecError, match=r"registry\.toml|public key"):
        read_registry(path)


@given(content=st.binary(max_size=300) | st.text(alphabet='=[]"\nabc.#0', max_size=80).map(str.encode))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_in_any_file_is_a_spec_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SpecError):
        read_registry(path)
    with pytest.raises(SpecError):
        read_private_key(path, "one")
    try:
        read_policy(path)
    except SpecError:
        return
    assert not content.strip() or content.lstrip().startswith((b"#", b"\n"))
