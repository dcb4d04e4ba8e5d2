"""The first message of a batch of sums: the session's keys request together with the models that it is about."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt.errors import ProtocolError, ShapeError
from fedgt.secagg.messages import pack, unpack
from fedgt.types import Parameters

_DTYPES: Mapping[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "f8": np.dtype("<f8")}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundMessage:
    """What a client needs to begin.

    Attributes:
        session: The keys request for its `ClientSession`.
        parameters: The global model of the round, float32 or float64.
        center: The current Weiszfeld estimate in the space of updates; None for other tasks.
    """

    session: bytes
    parameters: Parameters
    center: Parameters | None = None

    def to_bytes(self) -> bytes:
        """The frame: raw little-endian arrays, named and shaped in the header.

        Raises:
            ShapeError: If an array is neither float32 nor float64.
        """
        header: dict[str, object] = {"kind": "round", "session": len(self.session)}
        bodies: list[bytes] = [self.session]
        for what, tensors in (("parameters", self.parameters), ("center", self.center)):
            header[what] = None if tensors is None else [_describe(name, array) for name, array in tensors.items()]
            bodies += [] if tensors is None else [_raw(array) for array in tensors.values()]
        return pack(header, *bodies)

    @classmethod
    def from_bytes(cls, payload: bytes) -> "RoundMessage":
        """Read what `to_bytes` wrote.

        Raises:
            ProtocolError: If the bytes are anything else.
        """
        header, body = unpack(payload, kind="round")
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
    """SHA-256 of names, dtypes, shapes and values: the same for equal models only."""
    described = pack({"tensors": [_describe(name, array) for name, array in parameters.items()]})
    return hashlib.sha256(described + b"".join(_raw(array) for array in parameters.values())).digest()


def _code(array: npt.NDArray[np.floating]) -> str:
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    if code not in _DTYPES:
        raise ShapeError(f"a tensor has dtype {array.dtype}; float32 or float64 is needed")
    return code


def _describe(name: str, array: npt.NDArray[np.floating]) -> list[object]:
    return [name, _code(array), list(array.shape)]


def _raw(array: npt.NDArray[np.floating]) -> bytes:
    return np.ascontiguousarray(array, dtype=_DTYPES[_code(array)]).tobytes()


def _read_tensors(entries: object, body: memoryview, start: int) -> tuple[Mapping[str, npt.NDArray[Any]], int]:
    tensors: dict[str, npt.NDArray[Any]] = {}
    if not isinstance(entries, list):
        raise ProtocolError("malformed message: the tensors are not a list")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3:
            raise ProtocolError("malformed message: a tensor needs a name, a dtype and a shape")
        name, code, shape = entry
        if not isinstance(name, str) or name in tensors or not isinstance(code, str) or code not in _DTYPES:
            raise ProtocolError("malformed message: a tensor has no usable name or dtype, or occurs twice")
        if not isinstance(shape, list) or len(shape) > 16 or not all(type(n) is int and n >= 0 for n in shape):
            raise ProtocolError(f"malformed message: tensor {name!r:.80} has no usable shape")
        count = 1
        for length in shape:
            count *= length
        stop = start + count * _DTYPES[code].itemsize
        if stop > len(body):
            raise ProtocolError(f"malformed message: tensor {name!r:.80} is cut off")
        # Read-only views of the message: nobody can change the global model by accident.
        try:
            tensors[name] = np.frombuffer(bytes(body[start:stop]), dtype=_DTYPES[code]).reshape(shape)
        except ValueError as error:
            raise ProtocolError(f"malformed message: tensor {name!r:.80} has no usable shape") from error
        start = stop
    return tensors, start
