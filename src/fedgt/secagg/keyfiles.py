"""Identities on disk: the private key as PKCS8 PEM with mode 0600, the registry as TOML.

A registry file:

    server = "9f0c..."          # 64 hexadecimal digits
    [clients]
    hospital-north = "41b2..."
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fedgt.errors import SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_id
from fedgt.secagg.identity import Identity, Registry, require_distinct
from fedgt.text_file import decoded, read_content, replace_text

_LARGEST_FILE = 2**24
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write_private_key(path: Path, identity: Identity) -> None:
    """Write a private key that only its owner can read; never overwrites.

    Raises:
        SpecError: If the file exists or cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.secagg import Identity, read_private_key, write_private_key
        >>> identity = Identity.generate("ada")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_private_key(Path(folder) / "ada.pem", identity)
        ...     read_private_key(Path(folder) / "ada.pem", "ada").public == identity.public
        True
    """
    pem = identity.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise SpecError(f"{path} exists: a key is never overwritten, choose another file or remove it") from error
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)


def read_private_key(path: Path, name: str) -> Identity:
    """The identity in a key file.

    Args:
        path: A PEM file as `write_private_key` makes it.
        name: The client id, or what the server is called.

    Raises:
        SpecError: If the file cannot be read, is open to others than its owner, or holds no Ed25519 private key; if the
            name cannot be an id.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.secagg import Identity, read_private_key, write_private_key
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_private_key(Path(folder) / "ada.pem", Identity.generate("ada"))
        ...     read_private_key(Path(folder) / "ada.pem", "ada").name
        'ada'
    """
    content = _read(path)
    if os.name == "posix" and path.stat().st_mode & _OTHERS:
        raise SpecError(f"{path} can be read or written by others than its owner: chmod 600 it, or make a new key")
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SpecError(f"{path} holds no private key in PEM form without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SpecError(f"{path} holds a {type(key).__name__}; an Ed25519 key is needed: fedgt keygen makes one")
    return Identity(name=require_id(name), key=key)


def read_registry(path: Path) -> Registry:
    """The public keys of a consortium.

    Raises:
        SpecError: If the file cannot be read, is not a registry, names no server, or two names share one key.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.secagg import Identity, add_to_registry, read_registry
        >>> server = Identity.generate("server")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     add_to_registry(Path(folder) / "registry.json", server, server=True)
        ...     read_registry(Path(folder) / "registry.json").server == server.public
        True
    """
    server, clients = _parse(_read(path), path)
    if server is None:
        raise SpecError(f"{path} has no server key: fedgt keygen NAME --server --registry {path} adds one")
    return Registry(server=server, clients=clients)


def add_to_registry(path: Path, identity: Identity, *, server: bool) -> None:
    """Add a public key to a registry file, which is made if it does not exist.

    Raises:
        SpecError: If the file is no registry, the name or the key is in it already, or it has a server already.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.secagg import Identity, add_to_registry, read_registry
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "registry.json"
        ...     add_to_registry(path, Identity.generate("server"), server=True)
        ...     add_to_registry(path, Identity.generate("ada"), server=False)
        ...     sorted(read_registry(path).clients)
        ['ada']
    """
    known_server, clients = _parse(_read(path), path) if path.exists() else (None, {})
    if server and known_server is not None:
        raise SpecError(f"{path} has a server key already: a consortium has one server")
    if not server and identity.name in clients:
        raise SpecError(f"{path} has a client {identity.name!r} already: ids must be unique")
    if server:
        known_server = identity.public
    else:
        clients = {**clients, identity.name: identity.public}
    require_distinct(known_server, clients)
    content: dict[str, object] = {} if known_server is None else {"server": known_server.hex()}
    content["clients"] = {name: key.hex() for name, key in sorted(clients.items())}
    replace_text(path, tomli_w.dumps(content))


def _read(path: Path) -> bytes:
    return read_content(path, "key or registry", largest=_LARGEST_FILE)


def _parse(content: bytes, path: Path) -> tuple[bytes | None, Mapping[str, bytes]]:
    try:
        raw = tomllib.loads(decoded(content, f"registry {path}"))
    except (ValueError, RecursionError) as error:  # a repeated id is an error of TOML itself
        raise SpecError(f"{path} is not a TOML file: {error}") from error
    unknown = sorted(set(raw) - {"server", "clients"})
    clients = raw.get("clients", {})
    if unknown or not isinstance(clients, dict):
        raise SpecError(f"{path}: a server key and a table [clients] are needed, found {plain(', '.join(raw))}")
    server = _key(raw["server"], "server", path) if "server" in raw else None
    keys = {name: _key(value, name, path) for name, value in clients.items()}
    require_distinct(server, keys)
    return server, keys


def _key(value: object, name: str, path: Path) -> bytes:
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError as error:
        raise SpecError(f"{path}: the key of {name!r} is not hexadecimal") from error
