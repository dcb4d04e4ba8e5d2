"""What a client decides for itself: limits that no server can override.

They are checked against every plan before a key is made, and the sizes again whenever clients have dropped. A TOML policy:

    privacy = 4
    colluders = 1
    largest_clip = 8.0
"""

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedgt.defaults import COLLUDERS, NO_LIMIT
from fedgt.errors import PolicyError, SpecError
from fedgt.foreign_text import plain
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.terms import clip_of
from fedgt.text_file import read_text

_LARGEST_FILE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """The limits of one client.

    Attributes:
        minimum_group_size: No sum over fewer clients, counted by those whose input is really in it.
        minimum_threshold: No group that fewer clients could open.
        colluders: No plan that allows for fewer clients that help a server which lies (docs/threat-model.md).
        last_round: No round with a higher number.
        sums_per_round: No more batches of sums than this about one local model.
        later_stages: In no more later stages of plans than this in a run, all rounds together. The server says when it needs
            one, and nobody can check why: what it may open in any case is the promise below, of all stages together.
        privacy: The promise r: no combination of all sums about one global model may mix fewer clients, over those whose
            vectors are really in them; 0 promises nothing. No single sum may be smaller either.
        privacy_over_runs: The same over all sums about this client's data, whatever the model, run and purpose, as if its
            updates repeated; 0 does not limit it. One absence already exhausts a limit above 1.
        largest_share: What all sums about one global model explain of any client's difference from the mean, at most, also
            with the help of `colluders` clients; an estimate on average (docs/disclosed-share.md). 1 does not limit it.
        near_model: Two global models count as one, for the promise, if they or the updates that this client makes from
            them differ by less than this part of the update; 0 counts only models that are equal to the last bit.
        largest_clip: No larger clip of the update, in its unit.
        largest_weight_ratio: No sum in which this client weighs more than this times the mean of its peers.
        largest_model: No model with more entries.

    Raises:
        SpecError: If a limit makes no sense.

    Examples:
        >>> from fedgt.secagg import ClientPolicy
        >>> policy = ClientPolicy(privacy=4, colluders=1)  # this client signs no plan that promises less
        >>> policy.largest_weight_ratio
        20.0
    """

    minimum_group_size: int = 2
    minimum_threshold: int = 1
    colluders: int = COLLUDERS
    last_round: int = 2**31 - 1
    sums_per_round: int = 2**31 - 1
    later_stages: int = 2**31 - 1
    privacy: int = 0
    privacy_over_runs: int = 0
    largest_share: float = NO_LIMIT
    near_model: float = 0.01
    largest_clip: float = math.inf
    largest_weight_ratio: float = 20.0
    largest_model: int = 2**31 - 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, least in (
            ("minimum_group_size", 1),
            ("minimum_threshold", 1),
            ("last_round", 0),
            ("sums_per_round", 1),
            ("later_stages", 0),
            ("privacy", 0),
            ("privacy_over_runs", 0),
            ("colluders", 0),
            ("largest_model", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise SpecError(f"{name} is {value!r}; an integer of at least {least} is needed")
        if not 0 <= self.near_model < 1:
            raise SpecError(f"near_model is {self.near_model}; from 0 to below 1 is needed")
        if not 0 < self.largest_share <= 1:
            raise SpecError(f"largest_share is {self.largest_share}; above 0, and at most 1 (no limit), is needed")
        for name in ("largest_clip", "largest_weight_ratio"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name} is {getattr(self, name)}; a number above 0 is needed")

    def require(self, plan: RoundPlan) -> None:
        """Refuse a plan as a whole.

        Raises:
            PolicyError: With the limit and what the plan has.
        """
        if plan.colluders < self.colluders:
            raise PolicyError(
                f"the plan allows for {plan.colluders} colluders, this client's policy for {self.colluders}: the server "
                "sets colluders of its federation"
            )
        if plan.round > self.last_round:
            raise PolicyError(f"round {plan.round} is above this client's last_round {self.last_round}")
        if plan.entries > self.largest_model:
            raise PolicyError(f"{plan.entries} entries are above this client's largest_model {self.largest_model}")
        if clip_of(plan) > self.largest_clip:
            raise PolicyError(f"clip {clip_of(plan):g} is above this client's largest_clip {self.largest_clip:g}")

    def refusal(self, plan: RoundPlan, group: int, client: str) -> str | None:
        """Why a group of a plan is refused; None if it is not."""
        members, threshold = plan.groups[group], plan.thresholds[group]
        if reason := self.too_small(len(members)):
            return reason
        if threshold < self.minimum_threshold:
            return f"threshold {threshold} is below this client's minimum_threshold {self.minimum_threshold}"
        weights = {member: a * plan.weights[member] for member, a in plan.factors(group).items()}
        own = weights.pop(client, 0)
        peers = list(weights.values())
        if peers and own * len(peers) > self.largest_weight_ratio * sum(peers):
            return (
                f"weight {own} is more than {self.largest_weight_ratio:g} times the mean of its peers: "
                "this client would be nearly visible in the sum"
            )
        return None

    def too_small(self, size: int) -> str | None:
        """Why a sum over so few clients is refused; None if it is not."""
        least = max(self.minimum_group_size, self.privacy, self.privacy_over_runs)
        if size >= least:
            return None
        return f"a sum over {size} client(s) is below this client's minimum of {least}"

    def too_few(self, plan: RoundPlan, group: int, present: int) -> str | None:
        """Why a group of which so few clients are left is refused; None if it is not."""
        threshold = plan.thresholds[group]
        if present < threshold:
            return f"{present} client(s) are left, the threshold is {threshold}"
        return self.too_small(present)


ANONYMOUS = ClientPolicy(minimum_group_size=1, colluders=0, near_model=0.0, largest_weight_ratio=math.inf)
"""No limits of its own: for simulations, where the server is believed."""


def read_policy(path: Path) -> ClientPolicy:
    """The policy in a TOML file; what it leaves out has its default.

    Raises:
        SpecError: If the file cannot be read, has a limit that does not exist, or a value that makes no sense.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.secagg import read_policy
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "policy.toml"
        ...     _ = path.write_text("privacy = 4")
        ...     read_policy(path).privacy
        4
    """
    content = read_text(path, "policy", largest=_LARGEST_FILE)
    try:
        raw: dict[str, Any] = tomllib.loads(content)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not a TOML file: {error}") from error
    known = [one.name for one in fields(ClientPolicy)]
    if unknown := sorted(set(raw) - set(known)):
        raise SpecError(f"{path}: there is no limit {plain(', '.join(unknown))}; known are {', '.join(known)}")
    for name, value in raw.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpecError(f"{path}: {name} is {value!r:.80}; a number is needed")
    return ClientPolicy(**raw)
