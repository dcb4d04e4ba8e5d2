"""Values of named classes as bytes and back, exactly: arrays as in an `.npz`, everything else as strict JSON. No pickle.

What is read is made of the classes that the reader names, plain values and arrays of numbers; nothing else can come of it.
"""

import dataclasses
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgt import strict_json
from fedgt.errors import SpecError

_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    zipfile.BadZipFile,
    NotImplementedError,
    RecursionError,
)
"""What reading bytes that are no such archive raises."""

_DEEPEST = 32


def pack(value: object, classes: Sequence[type], *, label: str) -> bytes:
    """A value as bytes.

    Args:
        value: None, truth values, numbers, strings, arrays of numbers, tuples, mappings with strings as keys, frozen sets of
            strings, and instances of the classes.
        classes: Dataclasses that may be in it, with different names.
        label: Who wrote it; see `label_of`.

    Raises:
        TypeError: If something else is in it.
    """
    named = {one.__name__: one for one in classes}
    arrays: dict[str, npt.NDArray[Any]] = {}
    content = _encoded(value, named, arrays, {})
    fields = {name: [field.name for field in _fields(one)] for name, one in named.items()}
    meta = json.dumps({"label": label, "fields": fields, "content": content}, allow_nan=False)
    text = np.frombuffer(meta.encode(), dtype=np.uint8)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, meta=text, sha256=_checksum(text, arrays), **arrays)
    return file.getvalue()


def unpack(content: bytes, classes: Sequence[type]) -> Any:
    """The value that `pack` was given; its arrays are read-only, its mappings dicts.

    Raises:
        SpecError: If these are not such bytes, they are damaged, or the classes have other fields now.
    """
    meta, arrays = _read(content)
    named = {one.__name__: one for one in classes}
    try:
        for name, one in named.items():
            if meta["fields"][name] != [field.name for field in _fields(one)]:
                raise SpecError(f"written by another version of fedgt ({meta['label']}): {name} has other fields now")
        return _decoded(meta["content"], named, arrays)
    except _DAMAGE as error:
        raise SpecError(f"not as fedgt writes it ({error})") from error


def label_of(content: bytes) -> str:
    """The label that `pack` was given.

    Raises:
        SpecError: As `unpack`.
    """
    return str(_read(content)[0]["label"])


def _read(content: bytes) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        text, checksum = arrays.pop("meta"), arrays.pop("sha256")
        if not np.array_equal(checksum, _checksum(text, arrays)):
            raise SpecError("damaged: its checksum is wrong")
        meta = strict_json.parse(text.tobytes(), deepest=_DEEPEST)
        if not isinstance(meta, dict) or set(meta) != {"label", "fields", "content"}:
            raise SpecError("not as fedgt writes it")
    except SpecError:
        raise
    except _DAMAGE as error:
        raise SpecError(f"damaged ({error})") from error
    for array in arrays.values():
        array.setflags(write=False)
    return meta, arrays


def _encoded(
    value: Any, named: Mapping[str, type], arrays: dict[str, npt.NDArray[Any]], known: dict[int, tuple[str, Any]]
) -> Any:
    """Plain values stand for themselves; everything else is a list that begins with what it is."""
    if value is None or isinstance(value, bool | np.bool_ | str):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else ["float", str(float(value))]
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise TypeError(f"an array of dtype {value.dtype} cannot be packed")
        # By identity, so that what is shared is written once; the array is kept, so that no other gets its number.
        name, _ = known.setdefault(id(value), (f"a{len(arrays)}", value))
        arrays[name] = value
        return ["array", name]

    def inner(one: Any) -> Any:
        return _encoded(one, named, arrays, known)

    if named.get(type(value).__name__) is type(value):
        return [type(value).__name__, *(inner(getattr(value, field.name)) for field in _fields(type(value)))]
    if isinstance(value, tuple):
        return ["tuple", *map(inner, value)]
    if isinstance(value, frozenset):
        return ["set", *sorted(value)]
    if isinstance(value, Mapping):
        return ["dict", *(inner(part) for pair in value.items() for part in pair)]
    raise TypeError(f"a {type(value).__name__} cannot be packed")


def _decoded(value: Any, named: Mapping[str, type], arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    if kind == "array":
        return arrays[parts[0]]
    if kind == "float":
        return float(parts[0])
    if kind == "set":
        return frozenset(parts)
    inner = [_decoded(part, named, arrays) for part in parts]
    if kind == "tuple":
        return tuple(inner)
    if kind == "dict":
        return dict(zip(inner[::2], inner[1::2], strict=True))
    names = [field.name for field in _fields(named[kind])]
    return named[kind](**dict(zip(names, inner, strict=True)))


def _fields(one: Any) -> list[Any]:
    return [field for field in dataclasses.fields(one) if field.init]


def _checksum(text: npt.NDArray[np.uint8], arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    digest = hashlib.sha256(text.tobytes())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), dtype=np.uint8)
