"""What one batch of secure sums is about, agreed before any key is made: the public `RoundPlan`.

Server and clients hold the same canonical JSON bytes; their SHA-256 digest is bound into every key, so that clients
with different plans cannot read each other's shares.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedgt import strict_json
from fedgt.defaults import COLLUDERS
from fedgt.errors import ModulusOverflowError, ProtocolError, SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_distinct_ids, require_id, require_name
from fedgt.secagg.coefficients import plain_or, require_coefficients
from fedgt.secagg.fixed_point import FixedPoint
from fedgt.secagg.plan_stages import is_digest, require_stages
from fedgt.types import require_model

Task: TypeAlias = Literal["mean", "weiszfeld"]
Kind: TypeAlias = Literal["mean", "keep"]

_MOST_ENTRIES = 2**31 - 1
_LONGEST_JSON = 2**24


def default_threshold(size: int, *, colluders: int = 0) -> int:
    """floor((size + colluders) / 2) + 1, at most everybody: above half of a group of this size, colluders left out.

    Args:
        size: The number of clients of the group.
        colluders: How many of them may work together with a server that lies: with 2 t > size + colluders no two lists
            of survivors can both find t clients (Bonawitz et al. 2017, section 6). In a group of hardly more than so many,
            everybody is needed.

    Raises:
        SpecError: If there are fewer colluders than none.

    Examples:
        >>> from fedgt.secagg import default_threshold
        >>> default_threshold(4), default_threshold(4, colluders=1)
        (3, 3)
    """
    if colluders < 0:
        raise SpecError(f"colluders is {colluders}; an integer from 0 is needed")
    return min((size + colluders) // 2 + 1, max(size, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """Name, shape and treatment of one tensor of the model.

    Attributes:
        name: As in the model.
        shape: As in the model.
        kind: "mean": the update is summed. "keep": the global model's value stays, nothing of it is sent; for integers
            such as the batch counter of a BatchNorm layer, of which a mean makes no sense.

    Raises:
        SpecError: If the name is empty or too long, a dimension is negative, or the kind is unknown.

    Examples:
        >>> from fedgt.secagg import TensorSpec
        >>> TensorSpec(name="weight", shape=(10, 64)).size
        640
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind = "mean"

    def __post_init__(self) -> None:
        """Check all three."""
        require_name(self.name, "tensor name")
        if self.kind not in ("mean", "keep"):
            raise SpecError(f'tensor {self.name!r}: kind is {self.kind!r}; "mean" or "keep" is needed')
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) > 16 or not all(type(length) is int and length >= 0 for length in self.shape):
            raise SpecError(f"tensor {self.name!r}: shape {self.shape} needs at most 16 dimensions, none below 0")

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    @property
    def sent(self) -> int:
        """The number of entries that travel in the masked vector: none if the tensor is kept."""
        return self.size if self.kind == "mean" else 0


def tensor_specs(parameters: Mapping[str, npt.NDArray[np.generic]]) -> tuple[TensorSpec, ...]:
    """The specs of a model: floating-point tensors are averaged, integer and boolean ones kept.

    Args:
        parameters: Tensor name -> array, in the order of the model.

    Raises:
        ShapeError: As `fedgt.types.require_model`.
        SpecError: As `TensorSpec`.

    Examples:
        >>> import numpy as np
        >>> from fedgt.secagg import tensor_specs
        >>> [one.kind for one in tensor_specs({"weight": np.zeros((10, 64)), "batches": np.array(3)})]
        ['mean', 'keep']
    """
    require_model(parameters)
    specs = []
    for name, array in parameters.items():
        specs.append(TensorSpec(name=name, shape=array.shape, kind="mean" if array.dtype.kind == "f" else "keep"))
    return tuple(specs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """All groups whose sums are taken together, and how.

    Attributes:
        run: The name of the run.
        round: The number of the round, from 0.
        purpose: What the sums are for, such as "test", "training" or "weiszfeld-0"; unique within a round.
        groups: The client ids of each group; the same client may sit in several groups. A group may be empty (its sum
            is an erasure), so that group numbers stay the rows of the design.
        thresholds: Per group, how many clients must help to open the sum; above half of the group.
        weights: Client id -> public integer weight, at least 1 (1 each, or sample counts). Ids outside all groups are
            left out.
        encoding: The fixed point; checked against the largest sum of weights.
        tensors: Names and shapes of the update, in the order in which it is flattened.
        task: "mean": the sum of weight * update. "weiszfeld": the sum of beta * [update; 1] of the smoothed Weiszfeld
            step (Pillutla et al. 2022), with alpha = weight / (sum of weights of the heaviest group).
        smoothing: nu of the Weiszfeld step; only for that task.
        update_clip: The clip of the update before it is multiplied by beta; only for the Weiszfeld task (for the mean
            it is `encoding.clip`).
        colluders: c, how many clients may work together with a server that lies. Thresholds and the quorum follow from it.
        inputs: What training starts from -> SHA-256, 64 hexadecimal digits: "model" is the global model, "center" the
            Weiszfeld estimate; others by agreement. Clients verify them before they train. `secure_sums` fills in both.
        stages: How many groups each stage opens, in the order of the groups (decision 0026); empty is one stage with all. A
            later stage is opened only if it is asked for, and everybody in it is in the first stage, too.
        challenges: Per stage, the hash of the seed of the question that every client answers about its vector (decision
            0021), 64 hexadecimal digits; empty asks none. `secure_sums` fills them in where a client is in two groups.
        coefficients: Per group, by which whole number each of its clients multiplies its vector before it is masked, in the
            order of the group (decision 0030). Only for the mean; empty multiplies nothing.

    Raises:
        SpecError: If anything above does not hold.
        ModulusOverflowError: If a worst-case sum does not fit into the ring.

    Examples:
        >>> import numpy as np
        >>> from fedgt.secagg import RoundPlan, default_threshold, fit_fixed_point, tensor_specs
        >>> groups = (("ada", "bob", "cleo"), ("bob", "cleo", "dan"))
        >>> plan = RoundPlan(
        ...     run="example",
        ...     round=1,
        ...     purpose="test",
        ...     groups=groups,
        ...     thresholds=tuple(default_threshold(len(group), colluders=1) for group in groups),
        ...     weights=dict.fromkeys(("ada", "bob", "cleo", "dan"), 1),
        ...     encoding=fit_fixed_point(clip=8.0, fraction_bits=24, weight_sum=3),
        ...     tensors=tensor_specs({"weight": np.zeros((2, 3))}),
        ... )
        >>> plan.thresholds, plan.colluders
        ((3, 3), 1)
    """

    run: str
    round: int
    purpose: str
    groups: tuple[tuple[str, ...], ...]
    thresholds: tuple[int, ...]
    weights: Mapping[str, int]
    encoding: FixedPoint
    tensors: tuple[TensorSpec, ...]
    task: Task = "mean"
    smoothing: float = 0.0
    update_clip: float = 0.0
    colluders: int = COLLUDERS
    inputs: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[int, ...] = ()
    challenges: tuple[str, ...] = ()
    coefficients: tuple[tuple[int, ...], ...] = ()
    _canonical: bytes = field(init=False, repr=False, compare=False)
    _factors: tuple[Mapping[str, int], ...] = field(init=False, repr=False, compare=False)
    _largest: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Freeze and check everything, then fix the canonical bytes."""
        object.__setattr__(self, "groups", tuple(tuple(group) for group in self.groups))
        object.__setattr__(self, "thresholds", tuple(self.thresholds))
        object.__setattr__(self, "tensors", tuple(self.tensors))
        object.__setattr__(self, "stages", tuple(self.stages) or (len(self.groups),))
        object.__setattr__(self, "challenges", tuple(self.challenges))
        object.__setattr__(self, "coefficients", plain_or(self.coefficients))
        require_id(self.run, "run")
        require_id(self.purpose, "purpose")
        if type(self.round) is not int or self.round < 0:
            raise SpecError(f"round is {self.round!r}; an integer from 0 is needed")
        self._check_inputs()
        self._check_groups()
        require_stages(self.groups, self.stages, self.challenges)
        require_coefficients(self.groups, self.coefficients, self.task)
        self._check_weights()
        self._weigh()
        self._check_tensors()
        self._check_task()
        self._check_ring()
        object.__setattr__(self, "_canonical", _canonical_json(self))

    def _check_inputs(self) -> None:
        if type(self.colluders) is not int or self.colluders < 0:
            raise SpecError(f"colluders is {self.colluders!r}; an integer from 0 is needed")
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        for name, digest in self.inputs.items():
            require_id(name, "name of an input")
            if not is_digest(digest):
                raise SpecError(f"input {name!r}: {digest!r:.80} is no SHA-256; 64 hexadecimal digits are needed")

    def _check_groups(self) -> None:
        if len(self.thresholds) != len(self.groups):
            raise SpecError(f"{len(self.groups)} groups need as many thresholds, got {len(self.thresholds)}")
        require_distinct_ids({client for group in self.groups for client in group})
        for index, (group, threshold) in enumerate(zip(self.groups, self.thresholds, strict=True)):
            if len(set(group)) != len(group):
                twice = sorted(client for client, count in Counter(group).items() if count > 1)
                raise SpecError(f"group {index} names {', '.join(twice[:8])} more than once; ids must be unique")
            least = default_threshold(len(group), colluders=self.colluders)
            if type(threshold) is not int or not least <= threshold <= max(len(group), 1):
                raise SpecError(
                    f"group {index}: threshold {threshold} of {len(group)} clients; with {self.colluders} colluders "
                    f"{least} to {max(len(group), 1)} are needed"
                )

    def _check_weights(self) -> None:
        for client in self.clients:
            weight = self.weights.get(client)
            if not isinstance(weight, int | np.integer) or weight < 1:
                raise SpecError(f"client {client!r} has weight {weight!r}; an integer of at least 1 is needed")
        chosen = {client: int(self.weights[client]) for client in self.clients}
        object.__setattr__(self, "weights", MappingProxyType(chosen))

    def _weigh(self) -> None:
        """Work out once what is asked for again and again: the coefficients by name, and what the largest sums are."""
        rows = self.coefficients or tuple((1,) * len(group) for group in self.groups)
        factors = tuple(
            MappingProxyType(dict(zip(group, row, strict=True))) for group, row in zip(self.groups, rows, strict=True)
        )
        object.__setattr__(self, "_factors", factors)
        sums = [(self.weight_of(number, group), self.times(number, group)) for number, group in enumerate(self.groups)]
        heaviest, most = (max(values) for values in zip(*sums, strict=True)) if sums else (0, 0)
        object.__setattr__(self, "_largest", (heaviest or 1, most))

    def _check_tensors(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise SpecError(f"tensor names must be unique, got {names}")
        if not 1 <= self.entries <= _MOST_ENTRIES:
            raise SpecError(f"the tensors have {self.entries} entries; 1 to {_MOST_ENTRIES} are needed")

    def _check_task(self) -> None:
        if self.task == "mean":
            if self.smoothing or self.update_clip:
                raise SpecError('smoothing and update_clip belong to task "weiszfeld", not to "mean"; leave them out')
            return
        if self.task != "weiszfeld":
            raise SpecError(f'task is {self.task!r}; "mean" or "weiszfeld" is needed')
        for name, value in (("smoothing", self.smoothing), ("update_clip", self.update_clip)):
            if not (math.isfinite(value) and value > 0):
                raise SpecError(f'task "weiszfeld": {name} is {value}; a finite number above 0 is needed')
        reach = max(1.0, self.update_clip) / self.smoothing
        if self.encoding.clip < reach:
            raise SpecError(
                f"the encoding covers {self.encoding.clip:g}, but a Weiszfeld weight can make an entry "
                f"max(1, {self.update_clip:g}) / {self.smoothing:g} = {reach:g}: take weiszfeld_encoding(...)"
            )

    def _check_ring(self) -> None:
        for number, group in enumerate(self.groups):
            times = self.times(number, group)
            # In a Weiszfeld sum the weights are inside the real numbers: each entry counts once.
            self.encoding.require_room(len(group) if self.task == "weiszfeld" else self.weight_of(number, group))
            if self.entries * times > self.encoding.capacity:
                what = f"{len(group)} clients" if times == len(group) else f"coefficients that add up to {times}"
                raise ModulusOverflowError(
                    f"{self.entries} entries x {what} may all be clipped, above "
                    f"2^{self.encoding.ring_bits - 1} - 1 = {self.encoding.capacity}: use the 64-bit ring"
                )

    @property
    def clients(self) -> tuple[str, ...]:
        """Every client of any group, sorted."""
        return tuple(sorted({client for group in self.groups for client in group}))

    @property
    def entries(self) -> int:
        """The number of entries that are summed; kept tensors have none."""
        return sum(tensor.sent for tensor in self.tensors)

    @property
    def length(self) -> int:
        """The length of the masked vector: the entries, the Weiszfeld weight if any, the clipped count."""
        return self.entries + (2 if self.task == "weiszfeld" else 1)

    def factors(self, group: int) -> Mapping[str, int]:
        """Client -> by which whole number it multiplies its vector in a group, in the order of the group."""
        return self._factors[group]

    def times(self, group: int, members: Collection[str]) -> int:
        """How many vectors a sum over these members of a group counts like: the sum of their coefficients."""
        factors = self.factors(group)
        return sum(factors[client] for client in members)

    def weight_of(self, group: int, members: Collection[str]) -> int:
        """The weight of a sum over these members of a group: of each its weight times its coefficient."""
        factors = self.factors(group)
        return sum(factors[client] * self.weights[client] for client in members)

    @property
    def heaviest(self) -> int:
        """The largest weight of the sum of any group, at least 1."""
        return self._largest[0]

    @property
    def reach(self) -> int:
        """The largest magnitude that an entry of an honest sum can have."""
        heaviest, times = self._largest
        weight = times if self.task == "weiszfeld" else heaviest
        return max(self.encoding.largest * weight, self.entries * times, 1)

    def of_stage(self, stage: int) -> range:
        """The numbers of the groups that a stage opens, the first stage is 0."""
        start = sum(self.stages[:stage])
        return range(start, start + self.stages[stage])

    def stage_of(self, group: int) -> int:
        """The stage that opens a group."""
        return next(stage for stage in range(len(self.stages)) if group in self.of_stage(stage))

    @property
    def shares_clients(self) -> bool:
        """Whether somebody is in two groups, and could give them two vectors."""
        return len(self.clients) < sum(map(len, self.groups))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self._canonical).hexdigest()

    def to_json(self) -> bytes:
        """The canonical bytes: JSON with sorted keys and no spaces."""
        return self._canonical

    @classmethod
    def from_json(cls, payload: bytes | memoryview) -> "RoundPlan":
        """Read what `to_json` wrote, and nothing else.

        Raises:
            ProtocolError: If the bytes are not the canonical form of a valid plan.
        """
        if len(payload) > _LONGEST_JSON:
            raise ProtocolError(f"not a valid plan: {len(payload)} bytes, at most {_LONGEST_JSON} are read")
        try:
            raw: dict[str, Any] = strict_json.parse(bytes(payload))
            encoding, tensors = FixedPoint(**raw.pop("encoding")), raw.pop("tensors")
            specs = tuple(TensorSpec(name=name, shape=tuple(shape), kind=kind) for name, shape, kind in tensors)
            plan = cls(encoding=encoding, tensors=specs, **raw)
            same = plan.to_json() == bytes(payload)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"not a valid plan: {plain(error)}") from error
        if not same:
            raise ProtocolError("not a valid plan: the bytes are not in canonical form")
        return plan


def _canonical_json(plan: RoundPlan) -> bytes:
    content: dict[str, object] = {field.name: getattr(plan, field.name) for field in fields(plan) if field.init}
    content |= {
        "weights": dict(plan.weights),
        "encoding": asdict(plan.encoding) | {"clip": float(plan.encoding.clip)},
        "tensors": [(tensor.name, tensor.shape, tensor.kind) for tensor in plan.tensors],
        "smoothing": float(plan.smoothing),
        "update_clip": float(plan.update_clip),
        "inputs": dict(plan.inputs),
    }
    if not plan.coefficients:
        del content["coefficients"]
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
