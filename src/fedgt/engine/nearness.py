"""Which of the global models that a client has answered are nearly the same? Kept as sketches, two kilobytes a model.

A server that changes one bit of a model, or much of it where it does not matter, gets nearly the same local model again.
If it sums it with other members, the difference of the two sums is one client's. A client therefore counts two models as
one if they, or the updates that it made from them, differ by less than a part of the update. Honest ones differ more.

Sketches are count sketches (Charikar, Chen and Farach-Colton 2002): the squared distance of two of them is that of the
tensors, unbiased, with a relative standard deviation of an eighth. Buckets and signs are secret, so nobody can choose two
models whose distance they misjudge.
"""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.types import FloatArray, Parameters

_BUCKETS = 128
_PIECE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnsweredModel:
    """A global model from which a local one was trained.

    Attributes:
        model: Its hash.
        sketch: float64[128], of the model.
        update: float64[128], of the update that was trained from it.
        clip: Of the update, in its unit.
        fraction_bits: Of the mean task; None for the Weiszfeld task, whose encoding is as fine as can be.
    """

    model: str
    sketch: FloatArray
    update: FloatArray
    clip: float
    fraction_bits: int | None

    def to_json(self) -> str:
        """One line."""
        packed = np.concatenate([self.sketch, self.update]).astype("<f8").tobytes()
        sketches = base64.b64encode(packed).decode()
        return json.dumps([self.model, sketches, self.clip, self.fraction_bits])

    @classmethod
    def from_json(cls, line: str | bytes) -> "AnsweredModel":
        """Read what `to_json` wrote.

        Raises:
            ValueError: If it is anything else.
        """
        model, text, clip, bits = json.loads(line)
        both = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
        if not isinstance(model, str) or not (bits is None or type(bits) is int) or both.shape != (2 * _BUCKETS,):
            raise ValueError("not an answered model")
        sketch, update = both[:_BUCKETS], both[_BUCKETS:]
        return cls(model=model, sketch=sketch, update=update, clip=float(clip), fraction_bits=bits)

    def rounds_otherwise(self, clip: float, fraction_bits: int | None) -> bool:
        """Whether sums of this model's updates were clipped or rounded in another way."""
        return self.clip != clip or (
            None not in (self.fraction_bits, fraction_bits) and self.fraction_bits != fraction_bits
        )


def new_seed() -> str:
    """256 secret bits for the buckets and signs of one client, from the operating system."""
    return secrets.token_hex(32)


def answered(
    parameters: Parameters,
    trained: Mapping[str, npt.NDArray[np.generic]],
    *,
    model: str,
    seed: str,
    clip: float,
    fraction_bits: int | None,
) -> AnsweredModel:
    """What to remember of a model that is about to be answered.

    Args:
        parameters: The global model.
        trained: The local model that was trained from it.
        model: The hash of the global model.
        seed: From `new_seed`, the same for all models of a client.
        clip: See `AnsweredModel`.
        fraction_bits: See `AnsweredModel`.
    """
    return AnsweredModel(
        model=model,
        sketch=sketched(parameters, seed=seed),
        update=sketched(trained, seed=seed, base=parameters),
        clip=clip,
        fraction_bits=fraction_bits,
    )


def sketched(
    tensors: Mapping[str, npt.NDArray[np.generic]],
    *,
    seed: str,
    base: Mapping[str, npt.NDArray[np.generic]] | None = None,
) -> FloatArray:
    """float64[128], linear in the floating-point tensors; an entry that is zero, not finite or not there adds nothing.

    Args:
        tensors: Tensor name -> array.
        seed: From `new_seed`.
        base: Is taken away first, entry by entry: an update beside huge entries that nobody trains is seen all the same.
    """
    sketch = np.zeros(_BUCKETS)
    for name, array in tensors.items():
        values = np.asarray(array).reshape(-1)
        if values.dtype.kind != "f":
            continue
        ground = None if base is None else np.asarray(base[name]).reshape(-1)
        rng = np.random.default_rng([int(seed, 16), *name.encode()])
        for start in range(0, values.size, _PIECE):
            piece = values[start : start + _PIECE].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):
                if ground is not None:
                    piece -= ground[start : start + _PIECE]
                piece[~np.isfinite(piece)] = 0.0
                code = rng.integers(0, 2 * _BUCKETS, size=piece.size, dtype=np.uint8)
                piece[code >= _BUCKETS] *= -1
                sketch += np.bincount(code % _BUCKETS, weights=piece, minlength=_BUCKETS)
    return sketch


def akin_models(
    parameters: Parameters, known: Sequence[AnsweredModel], *, model: str, part: float, seed: str
) -> tuple[AnsweredModel, ...]:
    """The answered models that count as one with this: the same, and those that differ by less than `part` of an update.

    Args:
        parameters: The global model.
        known: What was answered.
        model: The hash of the global model.
        part: Of the update that was made from the other one; 0 for the same only.
        seed: As for `answered`.
    """
    if not part or not known:
        return tuple(one for one in known if one.model == model)
    sketch = sketched(parameters, seed=seed)
    with np.errstate(invalid="ignore"):
        return tuple(one for one in known if one.model == model or _near(sketch - one.sketch, part * _norm(one.update)))


def akin_answers(model: str, known: Sequence[AnsweredModel], *, part: float) -> tuple[AnsweredModel, ...]:
    """The same for a model that was answered itself: it, or the update, differs by less than `part` of either update.

    It does not matter which of two was answered first: another process may have answered, and signed, in between.
    """

    def akin(one: AnsweredModel, other: AnsweredModel) -> bool:
        within = part * max(_norm(one.update), _norm(other.update))
        return _near(one.sketch - other.sketch, within) or _near(one.update - other.update, within)

    own = [one for one in known if one.model == model]
    with np.errstate(invalid="ignore"):
        return tuple(
            other for other in known if other.model == model or (part and any(akin(one, other) for one in own))
        )


def _near(difference: FloatArray, within: float) -> bool:
    # Whatever cannot be compared, such as numbers that are too large, counts as near.
    return not _norm(difference) >= within


def _norm(sketch: FloatArray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.linalg.norm(sketch))
