"""What a client remembers over a restart: its rounds, the models that it has answered, and what it has signed.

No locks: two processes of one client are kept apart by files that only one of them can make, which local disks and NFS from
version 3 on guarantee. On a file system that lets two processes make one file, two processes of one client can answer twice.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from fedgt.durable_file import sync_folder, write_once
from fedgt.engine.nearness import AnsweredModel, new_seed
from fedgt.errors import PolicyError, ProtocolError, SpecError
from fedgt.secagg import AgreementLog, Registry
from fedgt.text_file import read_content

_LARGEST_FILE = 2**28


class RoundJournal:
    """The rounds, models and agreements of one client; in memory, and in files if there is a path.

    `path` has one JSON list [run, round] a line. Beside it lie `path.models` (what was answered, a line each), `path.used`
    (an empty file for everything that is done once) and `path.agreed` (agreements, a file each). All are only ever added to,
    and are on the disk before a message is answered. A last line that was cut off by a crash belongs to a round that was not
    answered, and is passed over.

    Args:
        path: The file, made if it does not exist; None forgets everything when the process ends.

    Raises:
        SpecError: If a file cannot be read or is no journal.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read what is there."""
        self._path = path
        self._latest: dict[str, int] = {}
        self._later: dict[str, int] = {}
        self._counting = threading.Lock()
        self._models: list[AnsweredModel] = []
        self._seed = new_seed()
        if path is not None:
            self._load_models(path.with_name(path.name + ".models"))
            if path.exists():
                _without_cut(path)
            self._refresh()

    def _models_path(self) -> Path:
        assert self._path is not None  # noqa: S101 - only called with a path
        return self._path.with_name(self._path.name + ".models")

    @property
    def rounds(self) -> Mapping[str, int]:
        """Run -> the latest round that was begun."""
        return MappingProxyType(self._latest)

    @property
    def later(self) -> Mapping[str, int]:
        """Run -> in how many later stages of plans this client took part, as far as this process knows."""
        return MappingProxyType(self._later)

    @property
    def seed(self) -> str:
        """The secret seed of the sketches."""
        return self._seed

    @property
    def models(self) -> tuple[AnsweredModel, ...]:
        """The global models that were answered, by any process of this client."""
        if self._path is not None:
            self._refresh_models(self._models_path())
        return tuple(self._models)

    @property
    def keeps(self) -> bool:
        """Whether it outlives the process."""
        return self._path is not None

    def agreements(self, registry: Registry) -> AgreementLog:
        """What this client has signed in a consortium."""
        return AgreementLog(registry, None if self._path is None else self._path.with_name(self._path.name + ".agreed"))

    def recall(
        self, rounds: Mapping[str, int], later: Mapping[str, int], models: Iterable[AnsweredModel], seed: str
    ) -> None:
        """Take over what another journal of the same client remembers; a later round that is known here stays."""
        for run, number in rounds.items():
            self._latest[run] = max(number, self._latest.get(run, -1))
        for run, count in later.items():
            self._later[run] = max(count, self._later.get(run, 0))
        if self._path is None:
            self._models, self._seed = list(models), seed

    def latest(self, run: str) -> int:
        """The latest round of a run that was begun, by any process of this client; -1 if there is none."""
        self._refresh()
        return self._latest.get(run, -1)

    def begin(self, run: str, number: int, purpose: str) -> None:
        """Write down that sums are answered: once for each (run, round, purpose), whichever process does it.

        Raises:
            ProtocolError: If another process has answered them.
            SpecError: If the files cannot be written: they must not be answered then.
        """
        self._once(json.dumps(["round", run, number, purpose]).encode(), "these sums were answered already")
        if self._path is not None and number > self.latest(run):
            self._append(self._path, json.dumps([run, number]))
        self._latest[run] = max(number, self._latest.get(run, -1))

    def take_part_later(self, run: str, *, most: int) -> None:
        """Write down that this client takes part in a later stage of a plan, whichever of its processes does.

        Args:
            run: The name of the run.
            most: In how many of them it may.

        Raises:
            PolicyError: If it has taken part in so many.
            SpecError: If it cannot be written: nothing must be answered then.
        """
        with self._counting:
            while (count := self._later.get(run, 0)) < most:
                self._later[run] = count + 1
                try:
                    self._once(json.dumps(["later stage", run, count]).encode(), "it was counted already")
                except ProtocolError:
                    continue
                return
        raise PolicyError(
            f"{count} later stages of run {run!r} were answered: this is the client's later_stages, and the sums of this "
            "round stay as they are"
        )

    def answer(self, model: AnsweredModel) -> None:
        """Write down that a local model was trained, before anything of it leaves.

        Raises:
            SpecError: If the file cannot be written.
        """
        if self._path is not None:
            self._append(self._models_path(), model.to_json())
        else:
            self._models.append(model)

    def spend(self, state: bytes) -> None:
        """Write down that a suspended state is used.

        A message may be handed to two processes, or again after a crash, with the same state: a stage answered twice could
        open a single model. Without a journal this rests on whoever keeps the state.

        Raises:
            ProtocolError: If it was used before.
            SpecError: If the file cannot be written.
        """
        self._once(state, "this state was used already")

    def _once(self, what: bytes, refusal: str) -> None:
        if self._path is None:
            return
        used = self._path.with_name(self._path.name + ".used")
        try:
            used.mkdir(mode=0o700, exist_ok=True)
            marker = os.open(used / hashlib.sha256(what).hexdigest(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.close(marker)  # it is empty: its name in the folder is all that must last
            sync_folder(used)
        except FileExistsError as error:
            raise ProtocolError(f"{refusal}, by another process") from error
        except OSError as error:
            raise SpecError(f"{used} cannot be written: {error.strerror}") from error

    def _append(self, path: Path, line: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                # One write, so that the lines of two processes do not mix.
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SpecError(f"journal {path} cannot be written: {error.strerror}") from error

    def _refresh(self) -> None:
        if self._path is None or not self._path.exists():
            return
        for number, line in enumerate(_lines(self._path), start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SpecError(f"journal {self._path}, line {number} is not JSON: the file was changed") from error
            if not (
                isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) is int
            ):
                raise SpecError(f"journal {self._path}, line {number} is not [run, round]: the file was changed")
            self._latest[entry[0]] = max(entry[1], self._latest.get(entry[0], -1))

    def _load_models(self, path: Path) -> None:
        if path.exists():
            _without_cut(path)
        if not path.exists():
            self._begin_models(path)
        self._refresh_models(path)

    def _begin_models(self, path: Path) -> None:
        """Make the file with a seed, unless another process has made it meanwhile: there must be one seed."""
        try:
            write_once(path, json.dumps(self._seed).encode() + b"\n")
        except FileExistsError:
            pass
        except OSError as error:
            raise SpecError(f"journal {path} cannot be written: {error.strerror}") from error

    def _refresh_models(self, path: Path) -> None:
        lines = _lines(path)
        try:
            self._seed = str(json.loads(lines[0]))
            int(self._seed, 16)
            self._models += [AnsweredModel.from_json(line) for line in lines[1 + len(self._models) :]]
        except (IndexError, ValueError, TypeError, RecursionError) as error:
            raise SpecError(f"{path} is not a record of answered models: the file was changed") from error


def _lines(path: Path) -> list[bytes]:
    """The whole lines of a file; one that another process is writing is none yet."""
    return _content(path).split(b"\n")[:-1]


def _content(path: Path) -> bytes:
    return read_content(path, "journal", largest=_LARGEST_FILE)


def _without_cut(path: Path) -> None:
    """Take a last line away that a crash has cut off, so that the next one does not continue it.

    Not one that another process has just written: what is cut off does not grow.
    """
    content = _content(path)
    whole = content.rfind(b"\n") + 1
    if whole < len(content) == path.stat().st_size:
        with path.open("ab") as file:
            file.truncate(whole)
