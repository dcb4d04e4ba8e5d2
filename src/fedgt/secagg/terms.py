"""What may not change during a run: pinned by each client, so that a server cannot change it without a word."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedgt.defaults import NO_LIMIT
from fedgt.errors import PolicyError, SpecError
from fedgt.ids import require_distinct_ids, require_id
from fedgt.secagg.coefficients import plain_or, require_coefficients
from fedgt.secagg.plan import RoundPlan, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What may not change during a run. Agreed beforehand by file, or pinned from the first plan of the run.

    Attributes:
        run: The name of the run.
        weights: Client id -> weight in every sum, at least 1.
        clip: Of the update.
        fraction_bits: Of the mean task (the ring follows from the bit budget).
        tensors: Names, shapes and kinds.
        groups: The rows of the design. A plan, whatever its purpose, has one group, or these rows: group i holds clients of
            row i only, and no more rows exist. None if the design is not pinned, as when the terms come from a first plan,
            in which clients may be absent.
        thresholds: Per row, the smallest threshold. None as for groups.
        coefficients: Per row, those of its clients in its order, as in a plan; empty if all are 1. A plan with one group
            has none then. They are pinned with the groups.
        members_only: Whether clients that `weights` does not name are refused; with groups they always are.
        privacy: The promise r, as in `ClientPolicy`; 0 leaves it to each client.
        privacy_over_runs: As in `ClientPolicy`.
        largest_share: As in `ClientPolicy`; 1 leaves it to each client.
        colluders: How many clients may help a server that lies; a plan must allow for as many.

    Raises:
        SpecError: If groups come without thresholds or the reverse, or coefficients do not fit the groups; if a name cannot
            be an id, or two look alike; if a weight is no whole number from 1 on.

    Examples:
        >>> import numpy as np
        >>> from fedgt.secagg import RunTerms, tensor_specs
        >>> terms = RunTerms(
        ...     run="example",
        ...     weights={"ada": 100, "bob": 100},
        ...     clip=8.0,
        ...     fraction_bits=24,
        ...     tensors=tensor_specs({"weight": np.zeros((2, 3))}),
        ...     privacy=2,
        ... )
        >>> terms.privacy
        2
    """

    run: str
    weights: Mapping[str, int]
    clip: float
    fraction_bits: int | None
    tensors: tuple[TensorSpec, ...]
    groups: tuple[tuple[str, ...], ...] | None = None
    thresholds: tuple[int, ...] | None = None
    privacy: int = 0
    privacy_over_runs: int = 0
    largest_share: float = NO_LIMIT
    colluders: int = 0
    coefficients: tuple[tuple[int, ...], ...] = ()
    members_only: bool = False

    def __post_init__(self) -> None:
        """Freeze and check."""
        object.__setattr__(self, "weights", MappingProxyType(dict(self.weights)))
        object.__setattr__(self, "coefficients", plain_or(self.coefficients))
        require_id(self.run, "run")
        require_distinct_ids({*self.weights, *(client for group in self.groups or () for client in group)})
        if empty := sorted(client for client, weight in self.weights.items() if type(weight) is not int or weight < 1):
            raise SpecError(
                f"the terms give no weight of at least 1 to {', '.join(empty):.200}: fill in how many samples each client "
                "has, before anybody signs"
            )
        if (self.groups is None) != (self.thresholds is None) or len(self.groups or ()) != len(self.thresholds or ()):
            raise SpecError("groups and thresholds of the terms belong together: give one threshold per group")
        require_coefficients(self.groups or (), self.coefficients, "mean")
        if not 0 < self.largest_share <= 1:
            raise SpecError(
                f"largest_share of the terms is {self.largest_share!r:.40}; above 0, and at most 1, is needed"
            )

    @classmethod
    def of(cls, plan: RoundPlan, *, design: bool = False) -> "RunTerms":
        """The terms that a plan implies; with its groups and thresholds if they are the whole design."""
        return cls(
            run=plan.run,
            weights=plan.weights,
            clip=clip_of(plan),
            fraction_bits=plan.encoding.fraction_bits if plan.task == "mean" else None,
            tensors=plan.tensors,
            groups=plan.groups if design else None,
            thresholds=plan.thresholds if design else None,
            coefficients=plan.coefficients if design else (),
            colluders=plan.colluders if design else 0,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form, 64 hexadecimal digits: what the members of a consortium compare by telephone."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The terms as JSON values, for a file."""
        content: dict[str, Any] = {
            "run": self.run,
            "weights": dict(self.weights),
            "clip": float(self.clip),
            "fraction_bits": self.fraction_bits,
            "tensors": [[tensor.name, list(tensor.shape), tensor.kind] for tensor in self.tensors],
            "groups": None if self.groups is None else [list(group) for group in self.groups],
            "thresholds": None if self.thresholds is None else list(self.thresholds),
            "privacy": self.privacy,
            "privacy_over_runs": self.privacy_over_runs,
            "largest_share": float(self.largest_share),
            "colluders": self.colluders,
        }
        if self.coefficients:
            content["coefficients"] = [list(row) for row in self.coefficients]
        if self.members_only:
            content["members_only"] = True
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunTerms":
        """Read what `to_json` wrote.

        Raises:
            ValueError: If a field is not as it is written, or is missing or unknown (`TypeError`, `KeyError`).
        """
        read = dict(content)
        read["tensors"] = tuple(
            TensorSpec(name=name, shape=tuple(shape), kind=kind) for name, shape, kind in read["tensors"]
        )
        for name in ("groups", "thresholds"):
            if read[name] is not None:
                read[name] = tuple(tuple(one) if isinstance(one, list) else one for one in read[name])
        terms = cls(**read)
        if terms.to_json() != content:
            raise ValueError("a field is not as fedgt writes it")
        return terms

    def require(self, plan: RoundPlan) -> None:
        """Refuse a plan that departs from the terms.

        Clients that the terms do not know yet are refused if a design or the members are pinned; else their weight is pinned
        by `joined`.

        Raises:
            PolicyError: With what was agreed and what the plan has.
        """
        agreed: tuple[tuple[str, object, object], ...] = (
            ("run", self.run, plan.run),
            ("clip of the run", self.clip, clip_of(plan)),
            ("tensors of the run", self.tensors, plan.tensors),
        )
        for name, before, now in agreed:
            if before != now:
                raise PolicyError(f"the {name} changed: agreed {before!r:.120}, now {now!r:.120}")
        if plan.task == "mean" and self.fraction_bits not in (None, plan.encoding.fraction_bits):
            raise PolicyError(
                f"the fraction_bits of the run changed: agreed {self.fraction_bits}, now {plan.encoding.fraction_bits}"
            )
        for client, weight in plan.weights.items():
            if client not in self.weights and (self.members_only or self.groups is not None):
                raise PolicyError(f"client {client} is not in the agreed terms of run {self.run!r}")
            if self.weights.get(client, weight) != weight:
                raise PolicyError(f"the weight of {client} changed: agreed {self.weights[client]}, now {weight}")
        if plan.colluders < self.colluders:
            raise PolicyError(f"the terms allow for {self.colluders} colluders, the plan for {plan.colluders}")
        if self.groups is None or self.thresholds is None:
            return
        if len(plan.groups) > 1:
            self._require_design(plan, self.groups, self.thresholds)
        elif plan.coefficients:
            raise PolicyError("the agreed design has coefficients for its own groups only, the plan for a single sum")

    def _require_design(self, plan: RoundPlan, rows: tuple[tuple[str, ...], ...], thresholds: tuple[int, ...]) -> None:
        if len(plan.groups) != len(rows):
            raise PolicyError(f"the design changed: {len(rows)} groups were agreed, now {len(plan.groups)}")
        for index, (group, row) in enumerate(zip(plan.groups, rows, strict=True)):
            if strangers := sorted(set(group) - set(row)):
                raise PolicyError(f"the design changed: {', '.join(strangers)} does not belong to group {index}")
            agreed = dict(zip(row, self.coefficients[index] if self.coefficients else (1,) * len(row), strict=True))
            if changed := sorted(client for client, a in plan.factors(index).items() if agreed[client] != a):
                raise PolicyError(f"the coefficients of group {index} changed: of {', '.join(changed)}")
            # Absent clients shrink a group; its threshold may shrink with it, but not as a fraction.
            if plan.thresholds[index] * len(row) < thresholds[index] * len(group):
                raise PolicyError(
                    f"the threshold of group {index} fell: agreed {thresholds[index]} of {len(row)}, now "
                    f"{plan.thresholds[index]} of {len(group)}"
                )

    def joined(self, plan: RoundPlan) -> "RunTerms":
        """The same terms, with what the plan adds pinned as well: weights of new clients, bits of the mean task."""
        bits = self.fraction_bits
        return replace(
            self,
            weights={**plan.weights, **self.weights},
            fraction_bits=plan.encoding.fraction_bits if bits is None and plan.task == "mean" else bits,
        )


def clip_of(plan: RoundPlan) -> float:
    """The clip of the update: the encoding's, or for the Weiszfeld task the plan's own."""
    return plan.encoding.clip if plan.task == "mean" else plan.update_clip
