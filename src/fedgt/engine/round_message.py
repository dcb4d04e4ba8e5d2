"""The first message of a batch of sums: the session's keys request together with the models that it is about."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt.errors import ProtocolError, ShapeError
from fedgt.ids import is_name
from fedgt.secagg.frames import SMALL_HEADER, Sender, pack, unpack
from fedgt.secagg.identity import Identity
from fedgt.secagg.plan import RoundPlan
from fedgt.types import Parameters, require_model

_DTYPES: Mapping[str, np.dtype[Any]] = {
    code: np.dtype(code if code.endswith("1") else f"<{code}")
    for code in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundMessage:
    """What a client needs to begin.

    Attributes:
        session: The keys request for its `ClientSession`.
        parameters: The global model of the round: floats of 16, 32 or 64 bits, integers, booleans.
        center: The current Weiszfeld estimate in the space of updates; None for other tasks.
    """

    session: bytes
    parameters: Parameters
    center: Parameters | None = None

    def to_bytes(self, *, identity: Identity | None = None) -> bytes:
        """The frame: raw little-endian arrays, named and shaped in the header; signed if there is an identity.

        Raises:
            ShapeError: If an array has another dtype.
        """
        header: dict[str, object] = {"kind": "round", "session": len(self.session)}
        bodies: list[bytes | memoryview] = [self.session]
        for what, tensors in (("parameters", self.parameters), ("center", self.center)):
            header[what] = None if tensors is None else [_describe(name, array) for name, array in tensors.items()]
            bodies += [] if tensors is None else [_raw(array) for array in tensors.values()]
        return pack(header, *bodies, identity=identity)

    @classmethod
    def from_bytes(cls, payload: bytes, *, sender: Sender | None = None) -> "RoundMessage":
        """Read what `to_bytes` wrote; the tensors are read-only views of the payload.

        Args:
            payload: The frame.
            sender: Whose signature it must carry; None in anonymous mode.

        Raises:
            SignatureError: If the signature is not the sender's.
            ProtocolError: If the bytes are anything else.
        """
        # A thousand small tensors at least, and a large model may have more.
        most = 8 * SMALL_HEADER + len(payload) // 16
        header, body = unpack(bytes(payload), kind="round", sender=sender, header_bytes=most)
        if set(header) != {"kind", "session", "parameters", "center"}:
            raise ProtocolError("malformed message: the header has other fields than a round message has")
        start = header["session"]
        if type(start) is not int or not 0 <= start <= len(body):
            raise ProtocolError("malformed message: the length of the session message is wrong")
        session = bytes(body[:start])
        parameters, start = _read_tensors(header["parameters"], body, start)
        center = None
        if header["center"] is not None:
            center, start = _read_tensors(header["center"], body, start)
        if start != len(body):
            raise ProtocolError(f"malformed message: {len(body) - start} bytes after the last tensor")
        return cls(session=session, parameters=parameters, center=center)


def fingerprint(parameters: Parameters) -> bytes:
    """SHA-256 of names, dtypes, shapes and values: the same for equal models only.

    Raises:
        ShapeError: As `fedgt.types.require_model`, or if a dtype is not known.

    Examples:
        >>> import numpy as np
        >>> from fedgt.engine import fingerprint
        >>> model = {"weight": np.zeros(3)}
        >>> fingerprint(model) == fingerprint({"weight": np.zeros(3)}), len(fingerprint(model))
        (True, 32)
    """
    require_model(parameters)
    described = pack({"tensors": [_describe(name, array) for name, array in parameters.items()]})
    digest = hashlib.sha256(described)
    for array in parameters.values():
        digest.update(_raw(array))
    return digest.digest()


def bound(plan: RoundPlan, parameters: Parameters, center: Parameters | None = None) -> RoundPlan:
    """The plan with the hashes of the models that it is about, so that all clients train from the same or none does."""
    hashes = {"model": fingerprint(parameters).hex()}
    if center is not None:
        hashes["center"] = fingerprint(center).hex()
    return replace(plan, inputs={**plan.inputs, **hashes})


def require_inputs(plan: RoundPlan, message: RoundMessage, own: Mapping[str, str]) -> None:
    """Check that the plan is about the very models that came with it, and about this client's other inputs.

    Args:
        plan: The plan.
        message: What came.
        own: Name -> hash of everything else that this client trains with and that the server has a say in.

    Raises:
        ProtocolError: With what the plan names and what is here.
    """
    here = {**bound(replace(plan, inputs={}), message.parameters, message.center).inputs, **own}
    for name in sorted({*here, *plan.inputs}):
        if plan.inputs.get(name) != here.get(name):
            planned, there = (str(hashes.get(name, "nothing"))[:16] for hashes in (plan.inputs, here))
            raise ProtocolError(
                f"the plan is about another {name} than this client has (SHA-256 {planned}, here {there}): all clients must "
                "train from the same"
            )


def require_own_inputs(plan: RoundPlan, own: Mapping[str, str]) -> None:
    """Check before training, which may happen in another process, that the other inputs are still those of the plan.

    Raises:
        ProtocolError: If they are not.
    """
    planned = {name: digest for name, digest in plan.inputs.items() if name not in ("model", "center")}
    if planned != dict(own):
        raise ProtocolError(
            f"the plan is about {sorted(planned)}, this client trains with {sorted(own)}, or with others of these names: "
            "all clients must train from the same"
        )


def _code(array: npt.NDArray[np.floating]) -> str:
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code not in _DTYPES:
        raise ShapeError(f"a tensor has dtype {array.dtype}; {', '.join(_DTYPES)} are known")
    return code


def _describe(name: str, array: npt.NDArray[np.floating]) -> list[object]:
    return [name, _code(array), list(array.shape)]


def _raw(array: npt.NDArray[np.floating]) -> memoryview:
    return np.ascontiguousarray(array, dtype=_DTYPES[_code(array)]).reshape(-1).view(np.uint8).data


def _read_tensors(entries: object, body: memoryview, start: int) -> tuple[Mapping[str, npt.NDArray[Any]], int]:
    tensors: dict[str, npt.NDArray[Any]] = {}
    if not isinstance(entries, list):
        raise ProtocolError("malformed message: the tensors are not a list")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3:
            raise ProtocolError("malformed message: a tensor needs a name, a dtype and a shape")
        name, code, shape = entry
        if not is_name(name) or name in tensors or not isinstance(code, str) or code not in _DTYPES:
            raise ProtocolError("malformed message: a tensor has no usable name or dtype, or occurs twice")
        if not isinstance(shape, list) or len(shape) > 16 or not all(type(n) is int and n >= 0 for n in shape):
            raise ProtocolError(f"malformed message: tensor {name!r:.80} has no usable shape")
        count = 1
        for length in shape:
            count *= length
        stop = start + count * _DTYPES[code].itemsize
        if stop > len(body):
            raise ProtocolError(f"malformed message: tensor {name!r:.80} is cut off")
        # Read-only views of the message: nobody can change the global model by accident. Only where a tensor does not
        # begin at a multiple of its width is it copied.
        piece: bytes | memoryview = body[start:stop]
        view = np.frombuffer(piece, dtype=_DTYPES[code])
        if not view.flags.aligned:
            view = np.frombuffer(bytes(piece), dtype=_DTYPES[code])
        try:
            tensors[name] = view.reshape(shape)
        except ValueError as error:
            raise ProtocolError(f"malformed message: tensor {name!r:.80} has no usable shape") from error
        start = stop
    return tensors, start
