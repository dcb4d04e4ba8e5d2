"""The chain of agreements that one party knows, in memory and, with a folder, on disk before it counts.

Server and clients keep the same kind of log. A link becomes a file of its own, which only one process can make: two
processes of one client can never sign two links of one number. On a file system without hard links the file is made
exclusively and then written; a crash in between leaves a broken last file, which is refused by name when the log is read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedgt.durable_file import write_durably, write_once
from fedgt.errors import ProtocolError, SpecError
from fedgt.secagg.agreement import Link, Row, chain_of, signatures_from_json, signatures_to_json
from fedgt.secagg.identity import Registry
from fedgt.text_file import read_content

_LARGEST_FILE = 2**26
_DIGITS = 8


class Head(NamedTuple):
    """Where a log ends: the number of its last link (0: none) and the digest that the next one must hold."""

    number: int
    digest: str


class AgreementLog:
    """Links in order, with the signatures that are known.

    Args:
        registry: The consortium; another registry is another chain.
        folder: Where it is kept, made if it does not exist; None forgets it when the process ends.

    Raises:
        SpecError: If the folder cannot be read, or does not hold such a log.

    Examples:
        >>> from fedgt.secagg import AgreementLog, Identity, Registry
        >>> server, ada = Identity.generate("server"), Identity.generate("ada")
        >>> log = AgreementLog(Registry(server=server.public, clients={"ada": ada.public}))  # give it a folder
        >>> isinstance(log, AgreementLog)
        True
    """

    def __init__(self, registry: Registry, folder: Path | None = None) -> None:
        """Read what is there."""
        self._registry = registry
        self._start = chain_of(registry)
        self._root = folder
        self._folder = None if folder is None else folder / self._start[:32]
        self._links: list[Link] = []
        self._digest = self._start
        self._rows: dict[str, list[Row]] = {}
        self._weights: dict[str, int] = {}
        self._elsewhere: set[Path] = set()
        self._signatures: dict[int, Mapping[str, bytes]] = {}
        if self._folder is not None:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise SpecError(f"{self._folder} cannot be made: {error.strerror}") from error
        self.refresh()

    @property
    def registry(self) -> Registry:
        """Whose agreements these are."""
        return self._registry

    @property
    def folder(self) -> Path | None:
        """Where it is kept; None where it ends with the process."""
        return self._root

    @property
    def head(self) -> Head:
        """Where it ends."""
        return Head(len(self._links), self._digest)

    @property
    def links(self) -> tuple[Link, ...]:
        """All links of this chain, in order."""
        return tuple(self._links)

    @property
    def weights(self) -> Mapping[str, int]:
        """Client -> its weight in the sums that `account` holds, without coefficients; of this chain the last one."""
        return self._weights

    def account(self) -> Mapping[str, Sequence[Row]]:
        """Hash of the global model -> the rows of everything that was signed about it, by other processes, too.

        It holds this chain and every other in the folder: whatever the registry, the data are the same.
        """
        self.refresh()
        if self._root is not None:
            try:
                others = [path for path in self._root.iterdir() if path.is_dir() and path != self._folder]
            except OSError as error:
                raise SpecError(f"{self._root} cannot be read: {error.strerror}") from error
            for path in {file for folder in others for file in folder.glob("*.json")} - self._elsewhere:
                link = Link.from_json(_read(path))
                self._elsewhere.add(path)
                self._rows.setdefault(link.model, []).extend(link.rows)
                self._weights = {**link.weights, **self._weights}
        return self._rows

    def refresh(self) -> None:
        """Take over what other processes have written since.

        Raises:
            SpecError: If a file is broken, or does not follow the one before.
        """
        while self._folder is not None and (path := self._path(len(self._links) + 1)).exists():
            try:
                link = Link.from_json(_read(path))
            except ProtocolError as error:
                raise SpecError(f"{path} is broken: restore it, or remove it if nothing was signed since") from error
            if link.number != len(self._links) + 1 or link.previous != self.head.digest:
                raise SpecError(f"{path} does not follow the agreement before it: the folder was changed")
            self._take(link)
            signed = path.with_suffix(".signed")
            if signed.exists():
                self._signatures[link.number] = signatures_from_json(_read(signed), registry=self._registry)

    def append(self, link: Link) -> None:
        """Add the next link; it is on the disk when this returns.

        Raises:
            ProtocolError: If it does not follow the last one, or another process has added another.
            SpecError: If it cannot be written: nothing must be signed then.
        """
        self.refresh()
        if (link.number - 1, link.previous) != self.head:
            raise ProtocolError(
                f"agreement {link.number} does not follow the last one that is known here, number {self.head.number}"
            )
        if self._folder is not None:
            try:
                write_once(self._path(link.number), link.to_json())
            except FileExistsError as error:
                raise ProtocolError(f"another process has signed agreement {link.number} already") from error
            except OSError as error:
                raise SpecError(f"{self._path(link.number)} cannot be written: {error.strerror}") from error
        self._take(link)

    def add_signatures(self, number: int, signatures: Mapping[str, bytes]) -> None:
        """Keep the signatures on a link, verified by the caller, for those that miss it; nothing rests on them.

        Raises:
            SpecError: If they cannot be written.
        """
        self._signatures[number] = {**self._signatures.get(number, {}), **signatures}
        if self._folder is not None:
            path = self._path(number).with_suffix(".signed")
            write_durably(path, signatures_to_json(self._signatures[number]), sync=False)

    def after(self, head: Head) -> list[tuple[Link, Mapping[str, bytes]]]:
        """What a party whose log ends at `head` has missed.

        Raises:
            ProtocolError: If its log is not a beginning of this one.
        """
        known = self._start if head.number == 0 else ""
        if 0 < head.number <= len(self._links):
            known = self._links[head.number - 1].digest
        if known != head.digest:
            raise ProtocolError(
                f"its agreements end with number {head.number}, which is not in the record of {len(self._links)} here: "
                "the server must go on with the record that it kept, or the consortium with a new registry"
            )
        return [(link, self._signatures.get(link.number, {})) for link in self._links[head.number :]]

    def _take(self, link: Link) -> None:
        self._links.append(link)
        self._digest = link.digest
        self._rows.setdefault(link.model, []).extend(link.rows)
        self._weights |= link.weights

    def _path(self, number: int) -> Path:
        assert self._folder is not None  # noqa: S101 - only called with a folder
        return self._folder / f"{number:0{_DIGITS}d}.json"


def read_head(payload: bytes | memoryview) -> Head:
    """Read what `head_bytes` wrote.

    Raises:
        ProtocolError: If it is anything else.
    """
    try:
        number, digest = bytes(payload).decode("ascii").split(" ")
        if len(payload) > 100 or not number.isdecimal() or len(digest) != 64:
            raise ValueError(number)
        return Head(int(number), digest)
    except ValueError as error:
        raise ProtocolError("malformed message: a number and a digest are needed where agreements end") from error


def head_bytes(head: Head) -> bytes:
    """A head on the wire."""
    return f"{head.number} {head.digest}".encode()


def _read(path: Path) -> bytes:
    return read_content(path, "agreement", largest=_LARGEST_FILE)
