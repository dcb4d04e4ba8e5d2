"""Terms that a consortium has agreed on, as a file that its clients sign: JSON, one signature a client.

A client takes the terms of a file only if it has signed them itself, and so have Q of the N clients of the registry, as for
an agreement: then no two sets of clients are bound to two terms of one run.
"""

import json
from pathlib import Path
from typing import Any

from fedgt import strict_json
from fedgt.errors import FedGTError, SignatureError, SpecError
from fedgt.foreign_text import plain
from fedgt.secagg.agreement import quorum
from fedgt.secagg.identity import Credentials, Registry, verify
from fedgt.secagg.terms import RunTerms
from fedgt.text_file import read_content, replace_text

_LARGEST_FILE = 2**24
_USE = "terms"


def write_terms(path: Path, terms: RunTerms) -> None:
    """Write terms for the clients to sign; never overwrites.

    Raises:
        SpecError: If the file exists or cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.secagg import RunTerms, tensor_specs, terms_in, write_terms
        >>> tensors = tensor_specs({"weight": np.zeros((2, 3))})
        >>> terms = RunTerms(run="example", weights={"ada": 1, "bob": 1}, clip=8.0, fraction_bits=24, tensors=tensors)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_terms(Path(folder) / "terms.json", terms)
        ...     terms_in(Path(folder) / "terms.json").run
        'example'
    """
    if path.exists():
        raise SpecError(f"{path} exists: terms that others may have signed are never overwritten, choose another file")
    _save(path, terms, {})


def sign_terms(path: Path, credentials: Credentials) -> RunTerms:
    """Add a client's signature to a file of terms, and return what it has signed.

    Raises:
        SpecError: If the file holds no terms, or the credentials are the server's.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.secagg import Credentials, Identity, Registry, RunTerms
        >>> from fedgt.secagg import sign_terms, tensor_specs, terms_signers, write_terms
        >>> server, ada = Identity.generate("server"), Identity.generate("ada")
        >>> registry = Registry(server=server.public, clients={"ada": ada.public})
        >>> tensors = tensor_specs({"weight": np.zeros((2, 3))})
        >>> terms = RunTerms(run="example", weights={"ada": 1}, clip=8.0, fraction_bits=24, tensors=tensors)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "terms.json"
        ...     write_terms(path, terms)
        ...     _ = sign_terms(path, Credentials(identity=ada, registry=registry))
        ...     terms_signers(path, registry)
        ('ada',)
    """
    if credentials.serves:
        raise SpecError("terms bind clients, and are signed by clients: the server has no say in them")
    terms, signatures = _load(path)
    signatures[credentials.identity.name] = credentials.identity.sign(_USE, bytes.fromhex(terms.digest)).hex()
    _save(path, terms, signatures)
    return terms


def read_terms(path: Path, credentials: Credentials) -> RunTerms:
    """The terms of a file that this client and a quorum of the registry have signed.

    Args:
        path: The file.
        credentials: Whose signature must be among them, and the keys that are trusted.

    Raises:
        SpecError: If the file holds no terms.
        SignatureError: If this client has not signed them, or too few have.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.secagg import Credentials, Identity, Registry, RunTerms
        >>> from fedgt.secagg import read_terms, sign_terms, tensor_specs, write_terms
        >>> server, ada = Identity.generate("server"), Identity.generate("ada")
        >>> credentials = Credentials(identity=ada, registry=Registry(server=server.public, clients={"ada": ada.public}))
        >>> tensors = tensor_specs({"weight": np.zeros((2, 3))})
        >>> terms = RunTerms(run="example", weights={"ada": 1}, clip=8.0, fraction_bits=24, tensors=tensors)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "terms.json"
        ...     write_terms(path, terms)
        ...     _ = sign_terms(path, credentials)
        ...     read_terms(path, credentials).run
        'example'
    """
    terms, _ = _load(path)
    signers = terms_signers(path, credentials.registry)
    if credentials.identity.name not in signers:
        raise SignatureError(f"{path}: {credentials.identity.name} has not signed these terms: fedgt terms --sign does")
    needed = quorum(len(credentials.registry.clients), colluders=terms.colluders)
    if len(signers) < needed:
        raise SignatureError(
            f"{path}: {len(signers)} of {len(credentials.registry.clients)} clients of the registry have signed these "
            f"terms, {needed} are needed"
        )
    return terms


def terms_signers(path: Path, registry: Registry) -> tuple[str, ...]:
    """The clients of the registry whose good signatures a file of terms has, sorted.

    Raises:
        SpecError: If the file holds no terms.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.secagg import Identity, Registry, RunTerms, tensor_specs, terms_signers, write_terms
        >>> server, ada = Identity.generate("server"), Identity.generate("ada")
        >>> registry = Registry(server=server.public, clients={"ada": ada.public})
        >>> tensors = tensor_specs({"weight": np.zeros((2, 3))})
        >>> terms = RunTerms(run="example", weights={"ada": 1}, clip=8.0, fraction_bits=24, tensors=tensors)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_terms(Path(folder) / "terms.json", terms)
        ...     terms_signers(Path(folder) / "terms.json", registry)  # nobody yet
        ()
    """
    terms, signatures = _load(path)
    digest = bytes.fromhex(terms.digest)
    good = []
    for client, signature in signatures.items():
        try:
            verify(registry.client_key(client), _USE, digest, bytes.fromhex(signature), signer=client)
        except (FedGTError, ValueError):
            continue
        good.append(client)
    return tuple(sorted(good))


def terms_in(path: Path) -> RunTerms:
    """The terms of a file, signed or not: to look at, not to take part with.

    Raises:
        SpecError: If the file holds no terms.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from fedgt.secagg import RunTerms, tensor_specs, terms_in, write_terms
        >>> tensors = tensor_specs({"weight": np.zeros((2, 3))})
        >>> terms = RunTerms(run="example", weights={"ada": 1, "bob": 1}, clip=8.0, fraction_bits=24, tensors=tensors)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_terms(Path(folder) / "terms.json", terms)
        ...     terms_in(Path(folder) / "terms.json") == terms  # whoever has signed them, or nobody
        True
    """
    return _load(path)[0]


def _load(path: Path) -> tuple[RunTerms, dict[str, str]]:
    content = read_content(path, "terms", largest=_LARGEST_FILE)
    try:
        raw: dict[str, Any] = strict_json.parse(content)
        signatures = {str(client): str(signature) for client, signature in raw["signatures"].items()}
        return RunTerms.from_json(raw["terms"]), signatures
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(f"{path} holds no terms: {plain(error)}") from error


def _save(path: Path, terms: RunTerms, signatures: dict[str, str]) -> None:
    content = {"terms": terms.to_json(), "signatures": dict(sorted(signatures.items()))}
    replace_text(path, json.dumps(content, indent=1) + "\n")
