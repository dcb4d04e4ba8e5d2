"""Who is who: long-term Ed25519 identities, and the registry of public keys that everybody pins.

Identities sign; they never encrypt and no mask is derived from them, so they can serve for any number of runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedgt.errors import SignatureError, SpecError
from fedgt.ids import require_distinct_ids, require_id
from fedgt.secagg.public_keys import require_public_key

SIGNATURE_BYTES = 64

_DOMAIN = b"fedgt signature 1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The private half: never leaves its owner.

    Attributes:
        name: The id of the client, or what the server is called in messages.
        key: The Ed25519 private key.

    Examples:
        >>> from fedgt.secagg import Identity
        >>> identity = Identity.generate("ada")  # the private key stays with its owner
        >>> identity.name, len(identity.public)
        ('ada', 32)
    """

    name: str
    key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def generate(cls, name: str) -> "Identity":
        """A new identity, drawn from the operating system.

        Raises:
            SpecError: If the name cannot be an id (`fedgt.ids.require_id`).
        """
        return cls(name=require_id(name), key=Ed25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self.key.public_key().public_bytes_raw()

    def sign(self, use: str, message: bytes) -> bytes:
        """64 bytes that bind a message to this identity and to one use, such as "frame" or "keys"."""
        return self.key.sign(_statement(use, message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The public keys of one consortium; public, but everybody must hold the same one, so distribute it by hand.

    Attributes:
        server: The server's public key, 32 bytes.
        clients: Client id -> public key, 32 bytes.

    Raises:
        SpecError: If a key is not one that its owner alone can sign for (`require_public_key`), an id cannot be used, two
            ids look alike, or two names share one key (one participant would count twice).

    Examples:
        >>> from fedgt.secagg import Identity, Registry
        >>> server, ada, bob = (Identity.generate(name) for name in ("server", "ada", "bob"))
        >>> registry = Registry(server=server.public, clients={"ada": ada.public, "bob": bob.public})
        >>> sorted(registry.clients)
        ['ada', 'bob']
    """

    server: bytes
    clients: Mapping[str, bytes]

    def __post_init__(self) -> None:
        """Freeze and check."""
        object.__setattr__(self, "clients", MappingProxyType(dict(self.clients)))
        require_distinct(self.server, self.clients)

    def client_key(self, client: str) -> bytes:
        """The pinned key of a client.

        Raises:
            SignatureError: If there is none.
        """
        if client not in self.clients:
            raise SignatureError(f"client {client} is not in the registry of {len(self.clients)} clients: add its key")
        return self.clients[client]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one participant brings: its own identity and the registry that it trusts.

    Attributes:
        identity: Its own.
        registry: Everybody's.

    Raises:
        SpecError: If the identity is neither the registry's server nor the client of that name.

    Examples:
        >>> from fedgt.secagg import Credentials, Identity, Registry
        >>> server, ada = Identity.generate("server"), Identity.generate("ada")
        >>> registry = Registry(server=server.public, clients={"ada": ada.public})
        >>> Credentials(identity=ada, registry=registry).identity.name
        'ada'
    """

    identity: Identity
    registry: Registry

    def __post_init__(self) -> None:
        """Check that the two belong together."""
        if self.identity.public not in (self.registry.server, self.registry.clients.get(self.identity.name)):
            raise SpecError(
                f"identity {self.identity.name!r} is not the one that the registry names: use the private key that "
                "belongs to the registered public key"
            )

    @property
    def serves(self) -> bool:
        """Whether this is the server's identity."""
        return self.identity.public == self.registry.server


def verify(public: bytes, use: str, message: bytes, signature: bytes | memoryview, *, signer: str) -> None:
    """Check a signature of `Identity.sign`.

    Raises:
        SignatureError: If it is not by this key over this message for this use; the message names the signer.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes(signature), _statement(use, message))
    except (InvalidSignature, ValueError) as error:
        raise SignatureError(f"the signature on the {use} of {signer} is not by its registered key") from error


def require_distinct(server: bytes | None, clients: Mapping[str, bytes]) -> None:
    """Check names and keys of a registry, complete or not.

    Raises:
        SpecError: As `Registry`.
    """
    require_distinct_ids(clients)
    seen: dict[bytes, str] = {}
    named = [(f"client {name}", key) for name, key in clients.items()]
    for owner, key in ([("the server", server)] if server is not None else []) + named:
        if require_public_key(key, owner) in seen:
            raise SpecError(f"{seen[key]} and {owner} share one public key: one participant must not count twice")
        seen[key] = owner


def _statement(use: str, message: bytes) -> bytes:
    return _DOMAIN + use.encode() + b"\0" + message
