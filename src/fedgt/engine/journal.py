"""What a client remembers over a restart: which rounds it has taken part in, so that none can be asked for again."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from fedgt.errors import ProtocolError, SpecError

_LARGEST_FILE = 2**28


class RoundJournal:
    """Run -> the latest round that was begun; in memory, and in a file if there is one.

    The file has one JSON list [run, round] a line, is only ever appended to, and is on the disk before the round is
    answered. A last line that was cut off by a crash belongs to a round that was not answered, and is passed over.

    Args:
        path: The file, made if it does not exist; None forgets everything when the process ends.

    Raises:
        SpecError: If the file cannot be read or is no journal.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read what is there."""
        self._path = path
        self._latest: dict[str, int] = {}
        if path is not None and path.exists():
            self._load(path)

    @property
    def rounds(self) -> Mapping[str, int]:
        """Run -> the latest round that was begun."""
        return MappingProxyType(self._latest)

    def recall(self, rounds: Mapping[str, int]) -> None:
        """Take over what another journal of the same client remembers; a later round that is known here stays."""
        for run, number in rounds.items():
            self._latest[run] = max(number, self.latest(run))

    def latest(self, run: str) -> int:
        """The latest round of a run that was begun; -1 if there is none."""
        return self._latest.get(run, -1)

    def begin(self, run: str, number: int) -> None:
        """Write down that a round begins.

        Raises:
            SpecError: If the file cannot be written: the round must not be answered then.
        """
        if self._path is not None:
            line = (json.dumps([run, number]) + "\n").encode()
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                with os.fdopen(descriptor, "ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise SpecError(f"journal {self._path} cannot be written: {error.strerror}") from error
        self._latest[run] = max(number, self.latest(run))

    def spend(self, state: bytes) -> None:
        """Write down that a suspended state is used; it leaves an empty file in the folder beside the journal.

        A message may be handed to two processes, or again after a crash, with the same state. A file that only one of them
        can make decides who goes on: a stage answered twice could open a single model. Without a journal this rests on
        whoever keeps the state.

        Raises:
            ProtocolError: If it was used before.
            SpecError: If the file cannot be written.
        """
        if self._path is None:
            return
        used = self._path.with_name(self._path.name + ".used")
        try:
            used.mkdir(mode=0o700, exist_ok=True)
            (used / hashlib.sha256(state).hexdigest()).touch(mode=0o600, exist_ok=False)
        except FileExistsError as error:
            raise ProtocolError("this state was used already, by another process") from error
        except OSError as error:
            raise SpecError(f"{used} cannot be written: {error.strerror}") from error

    def _load(self, path: Path) -> None:
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise SpecError(f"journal {path} is larger than {_LARGEST_FILE} bytes")
            content = path.read_bytes()
        except OSError as error:
            raise SpecError(f"journal {path} cannot be read: {error.strerror}") from error
        *lines, _cut = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SpecError(f"journal {path}, line {number} is not JSON: the file was changed") from error
            if not (
                isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) is int
            ):
                raise SpecError(f"journal {path}, line {number} is not [run, round]: the file was changed")
            self._latest[entry[0]] = max(entry[1], self.latest(entry[0]))
        if _cut:
            # So that the next line does not continue the broken one.
            with path.open("ab") as file:
                file.truncate(len(content) - len(_cut))
