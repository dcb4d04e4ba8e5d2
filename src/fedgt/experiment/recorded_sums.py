"""Every sum of a run on disk as soon as it is open, so that an interrupted run can go on.

Between two sums a run is a function of its specification and of the sums before, so the sums are all that has to be kept:
a resumed run plays them back through the same ledger, screen and decoder, and takes only those that are missing. Each file
says which plan and which global model it belongs to. One that is damaged, or belongs to another state, is not believed: its
sum is taken again, with a warning. The files hold what the server has seen anyway, and no client's model.
"""

import hashlib
import io
import json
import logging
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from fedgt._version import __version__
from fedgt.engine import SecureSums, TakesSums, Transport
from fedgt.engine.round_message import fingerprint
from fedgt.engine.transport import Failure, StreamingTransport
from fedgt.experiment.atomic import replace_file
from fedgt.secagg import AgreementLog, Authorise, Credentials, Fault, GroupSum, RoundPlan
from fedgt.types import FloatArray, Parameters

_log = logging.getLogger(__name__)

FOLDER = "sums"

OnStage: TypeAlias = Callable[[int, str, str], None]
"""(round, purpose of the sums, stage of the secure aggregation; `opened` when it is over)."""

_Asked: TypeAlias = tuple[tuple[tuple[str, ...], ...], tuple[str | None, ...]]
"""Whom the ledger was asked about, and what it said."""


_DAMAGE = (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile, NotImplementedError)
"""What reading a file that is no such archive raises."""


class _UnusableError(ValueError):
    """A file that is damaged or belongs to another state."""


@final
class RecordedSums:
    """Implements `fedgt.engine.TakesSums`: from the record where there is one, else by the protocol, and then on record.

    Args:
        take: Takes the sums that are not on record.
        folder: The run folder; the files lie in its `sums`.
        spec_hash: Of the run that the sums belong to.
        on_stage: Called when a stage of the secure aggregation begins, and when the sums are open.

    Attributes:
        taken: How many batches of sums were not on record.
        cpu_seconds: What earlier sessions of the run had used up to the last sum that was played back.
    """

    def __init__(self, take: TakesSums, folder: Path, *, spec_hash: str, on_stage: OnStage | None = None) -> None:
        """Nothing is read or written yet."""
        self._take = take
        self._folder = folder / FOLDER
        self._spec_hash = spec_hash
        self._on_stage = on_stage or _silent
        self._began = time.process_time()
        self.taken = 0
        self.cpu_seconds = 0.0

    def __call__(
        self,
        transport: Transport,
        plan: RoundPlan,
        parameters: Parameters,
        *,
        authorise: Authorise,
        timeout: float,
        center: Parameters | None = None,
        credentials: Credentials | None = None,
        agreements: AgreementLog | None = None,
    ) -> SecureSums:
        """See `fedgt.engine.secure_sums`."""
        path = self._folder / f"round-{plan.round:04d}-{plan.purpose}.npz"
        state = {
            "version": __version__,
            "spec_hash": self._spec_hash,
            "plan": plan.digest,
            "start": fingerprint(parameters).hex(),
            "center": None if center is None else fingerprint(center).hex(),
        }
        found = self._on_record(path, state, plan)
        if found is not None:
            # The ledger hears of every sum, played back or not; of nothing where all groups were lost before.
            if found.asked is None or authorise(found.asked[0]) == found.asked[1]:
                self.cpu_seconds = found.cpu_seconds
                return found.sums
            # Asking again for the same sums of the same models gives the same account.
            _log.warning("%s: the ledger decides otherwise now; the sums are taken again", path)
        self.taken += 1
        asked: list[_Asked] = []

        def noted(members: tuple[tuple[str, ...], ...]) -> tuple[str | None, ...]:
            verdicts = tuple(authorise(members))
            asked.append((members, verdicts))
            return verdicts

        sums = self._take(
            _Announced(transport, lambda stage: self._on_stage(plan.round, plan.purpose, stage)),
            plan,
            parameters,
            authorise=noted,
            timeout=timeout,
            center=center,
            credentials=credentials,
            agreements=agreements,
        )
        self._on_stage(plan.round, plan.purpose, "opened")
        spent = self.cpu_seconds + time.process_time() - self._began
        record = _Record(asked=asked[0] if asked else None, sums=sums, cpu_seconds=spent)
        self._folder.mkdir(exist_ok=True)
        replace_file(path, _packed(record, state))
        return sums

    def _on_record(self, path: Path, state: Mapping[str, Any], plan: RoundPlan) -> "_Record | None":
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _unpacked(content, state, plan)
        except _UnusableError as error:
            _log.warning("%s: %s; its sums are taken again", path, error)
            return None


def recorded_version(folder: Path) -> str | None:
    """Which version of fedgt recorded sums in a run folder; None where there is no readable record."""
    for path in sorted((folder / FOLDER).glob("round-*.npz")):
        try:
            with np.load(path, allow_pickle=False) as archive:
                return str(json.loads(archive["meta"].tobytes())["state"]["version"])
        except _DAMAGE:
            continue
    return None


def forget(folder: Path) -> None:
    """Remove the recorded sums of a run folder, and nothing else."""
    for path in [*(folder / FOLDER).glob("round-*.npz"), *(folder / FOLDER).glob(".round-*.npz.new")]:
        path.unlink(missing_ok=True)
    try:
        (folder / FOLDER).rmdir()
    except OSError:
        # There is none, or somebody keeps other files there.
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What one call left."""

    asked: _Asked | None
    sums: SecureSums
    cpu_seconds: float


def _packed(record: _Record, state: Mapping[str, Any]) -> bytes:
    sums = record.sums
    opened = [one.total for one in sums.sums if one.total is not None]
    names = list(opened[0]) if opened else []
    # One array per tensor, for all open groups: few entries in the archive.
    arrays = {f"tensor{i}": np.stack([total[name] for total in opened]) for i, name in enumerate(names)}
    meta = {
        "state": dict(state),
        "asked": record.asked,
        "tensors": names,
        "sums": [
            {
                "group": one.group,
                "members": one.members,
                "dropped": dict(one.dropped),
                "status": one.status,
                "reason": one.reason,
                "weight": one.weight,
                "clipped": one.clipped,
                "beta_total": one.beta_total,
                "faults": dict(one.faults),
            }
            for one in sums.sums
        ],
        "faults": [[fault.kind, fault.groups, fault.suspects] for fault in sums.faults],
        "bytes_up": sums.bytes_up,
        "bytes_down": sums.bytes_down,
        "seconds": dict(sums.seconds),
        "warnings": sums.warnings,
        "cpu_seconds": record.cpu_seconds,
    }
    text = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, meta=text, sha256=_checksum(text, arrays), **arrays)
    return file.getvalue()


def _unpacked(content: bytes, state: Mapping[str, Any], plan: RoundPlan) -> _Record:
    """The record of a file.

    Raises:
        _UnusableError: If it is damaged or belongs to another state.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        text, checksum = arrays.pop("meta"), arrays.pop("sha256")
        whole = np.array_equal(checksum, _checksum(text, arrays))
        meta = json.loads(text.tobytes()) if whole else {}
    except _DAMAGE as error:
        raise _UnusableError(f"damaged ({error})") from error
    if not whole:
        raise _UnusableError("damaged (its checksum is wrong)")
    if meta["state"] != state:
        names = {
            "version": "version of fedgt",
            "spec_hash": "specification",
            "plan": "plan",
            "start": "global model",
            "center": "Weiszfeld centre",
        }
        differs = ", ".join(what for key, what in names.items() if meta["state"].get(key) != state[key])
        raise _UnusableError(f"belongs to another state of the run (another {differs})")
    return _record(meta, arrays, plan)


def _record(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], plan: RoundPlan) -> _Record:
    for array in arrays.values():
        array.setflags(write=False)
    row = iter(range(len(plan.groups)))
    sums = []
    for one in meta["sums"]:
        total: Mapping[str, FloatArray] | None = None
        if one["status"] == "open":
            number = next(row)
            total = MappingProxyType({name: arrays[f"tensor{i}"][number] for i, name in enumerate(meta["tensors"])})
        sums.append(
            GroupSum(
                group=one["group"],
                members=tuple(one["members"]),
                dropped=MappingProxyType(one["dropped"]),
                status=one["status"],
                reason=one["reason"],
                total=total,
                weight=one["weight"],
                clipped=one["clipped"],
                beta_total=one["beta_total"],
                faults=MappingProxyType(one["faults"]),
            )
        )
    asked = meta["asked"]
    return _Record(
        asked=None if asked is None else (tuple(tuple(group) for group in asked[0]), tuple(asked[1])),
        sums=SecureSums(
            sums=tuple(sums),
            bytes_up=meta["bytes_up"],
            bytes_down=meta["bytes_down"],
            seconds=MappingProxyType(meta["seconds"]),
            warnings=tuple(meta["warnings"]),
            faults=tuple(
                Fault(kind=kind, groups=tuple(groups), suspects=tuple(suspects))
                for kind, groups, suspects in meta["faults"]
            ),
        ),
        cpu_seconds=meta["cpu_seconds"],
    )


def _checksum(text: npt.NDArray[np.uint8], arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    digest = hashlib.sha256(text.tobytes())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)


class _Announced:
    """A transport that says which stage begins."""

    def __init__(self, transport: Transport, told: Callable[[str], None]) -> None:
        self._transport = transport
        self._told = told

    def exchange(self, stage: str, messages: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        self._told(stage)
        return self._transport.exchange(stage, messages, timeout)

    def replies(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> Iterator[tuple[str, bytes | Failure]]:
        self._told(stage)
        if isinstance(self._transport, StreamingTransport):
            yield from self._transport.replies(stage, messages, timeout)
        else:
            yield from self._transport.exchange(stage, messages, timeout).items()


def _silent(_round: int, _purpose: str, _stage: str) -> None:
    pass
