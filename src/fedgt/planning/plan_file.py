"""`plan.json`: who shares a group, what was promised, and how outcomes become accusations. Strict, versioned, checked.

A plan is written by `fedgt design` and completed by the members of a consortium: their names, keys, thresholds, clip, bits
and the signature are optional here, under the names that `fedgt.secagg` gives them. docs/plan.schema.json describes it.
"""

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedgt.decode import Strategy
from fedgt.defaults import BETA, ERROR_RATE, KAPPA, SILHOUETTE_THRESHOLD
from fedgt.design import AnyDesign, design_of_rows
from fedgt.errors import DesignError, SpecError
from fedgt.ids import require_distinct_ids
from fedgt.planning.demands import Demands, Evidence
from fedgt.planning.evaluation import Figures
from fedgt.privacy import minimum_support
from fedgt.screen import Utility
from fedgt.secagg.public_keys import require_public_key
from fedgt.text_file import read_text, write_text
from fedgt.types import LARGEST_COEFFICIENT

_LARGEST_FILE = 2**24
_PROOF_STATES = 300_000  # what the proof of r may cost; the writer and the reader of a plan look equally far
_HEX_KEY = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# Plain digits: Python would also read 1e99999999, and work on it for hours.
_RATIONAL = Annotated[str, Field(pattern="^-?[0-9]{1,100}(/[0-9]{1,100})?$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class DesignPart(_Part):
    """Who shares a group."""

    name: str = Field(description="A short name of the design.")
    source: str = Field(description="Where the matrix comes from.")
    matrix: tuple[tuple[Annotated[int, Field(ge=0, le=LARGEST_COEFFICIENT)], ...], ...] = Field(
        description="One row per group, one column per client; 1 when the client is in the group, or its coefficient."
    )
    coefficients: Literal[True] | None = Field(
        None,
        description="True if entries above 1 are meant: by such a number a client multiplies its update in the group.",
    )

    @model_validator(mode="after")
    def _means_it(self) -> "DesignPart":
        if not self.coefficients and any(one > 1 for row in self.matrix for one in row):
            raise ValueError("design.matrix has entries above 1: add design.coefficients = true if they are meant")
        return self


class PrivacyPart(_Part):
    """What no combination of the sums may undercut, and the certificate of what the design gives."""

    promised: int = Field(ge=1, description="No combination of everything revealed mixes fewer clients.")
    r: int = Field(
        ge=1, description="The minimum support of the design over the reals (a proved lower bound if not exact)."
    )
    exact: bool = Field(description="Whether r is known and not only bounded from below.")
    combination: dict[str, _RATIONAL] = Field(
        description='Group -> rational multiplier, such as {"u0": "1/3"}: a combination of few clients.'
    )
    clients: tuple[int, ...] = Field(description="The columns that this combination mixes; exactly r of them if exact.")


class ScreenPart(_Part):
    """How a group sum becomes evidence."""

    utility: Utility = Field("balanced-accuracy", description="What is measured on the validation set.")
    source_label: int | None = Field(None, ge=0, description="The label under attack, needed by `recall`.")
    silhouette_threshold: float = Field(SILHOUETTE_THRESHOLD, ge=-1, le=1, description="s^thres of the paper.")


class StrategyPart(_Part):
    """How evidence becomes accusations."""

    name: Strategy = Field("bayes", description="See docs/decoding.md.")
    beta: float = Field(BETA, ge=0, le=1, description="Weight of a misdetection against a false alarm.")
    kappa: float = Field(KAPPA, ge=0, le=1, description="Accepted P(all groups contaminated).")
    largest: int = Field(ge=0, description="The most attackers that are expected: n_m^max of the prior.")
    false_alarm: float = Field(ERROR_RATE, ge=0, le=1, description="Assumed P(positive | clean group).")
    misdetection: float = Field(ERROR_RATE, ge=0, le=1, description="Assumed P(negative | contaminated group).")


class Plan(_Part):
    """A plan; `members` and what follows are added by the consortium.

    Raises:
        ValidationError: If a field is wrong, or parts do not fit one another.

    Examples:
        >>> from fedgt.planning import Demands, make_plan, search
        >>> demands = Demands(clients=8, privacy=2, max_malicious=1)
        >>> plan = make_plan(search(demands, effort=0.1, draws=1).recommended.figures, demands)
        >>> plan.version, plan.evidence
        (1, 'binary')
    """

    version: Literal[1] = Field(1, description="Of this format.")
    evidence: Evidence = Field(description="What the screen hands to the decoder.")
    design: DesignPart
    privacy: PrivacyPart
    screen: ScreenPart = ScreenPart.model_construct()
    strategy: StrategyPart
    members: tuple[str, ...] | None = Field(None, description="Client ids, one per column.")
    keys: dict[str, _HEX_KEY] | None = Field(
        None, description="Client id (and `server`) -> public Ed25519 key, 64 hexadecimal digits."
    )
    thresholds: tuple[int, ...] | None = Field(
        None, description="Per group, how many members must help to open its sum; above half."
    )
    clip: float | None = Field(None, gt=0, description="Entries of an update are clipped to [-clip, clip].")
    fraction_bits: int | None = Field(None, ge=0, le=52, description="The fixed-point step is 2^-fraction_bits.")
    ring_bits: Literal[32, 64] | None = Field(None, description="Sums are taken modulo 2^ring_bits.")
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")] | None = Field(
        None, description="Ed25519 over the canonical form of everything else, 128 hexadecimal digits."
    )

    @model_validator(mode="after")
    def _fits(self) -> "Plan":
        rows = self.design.matrix
        clients = self.assignment.clients  # raises, as a ValueError, if the matrix is no assignment
        if self.privacy.promised > self.privacy.r:
            raise ValueError(f"privacy {self.privacy.promised} is promised, but the design gives r = {self.privacy.r}")
        if self.thresholds is not None:
            if len(self.thresholds) != len(rows):
                raise ValueError(f"{len(self.thresholds)} thresholds for {len(rows)} groups; one each is needed")
            for group, (threshold, row) in enumerate(zip(self.thresholds, rows, strict=True)):
                size = sum(one > 0 for one in row)
                if not size < 2 * threshold <= 2 * size:
                    raise ValueError(
                        f"group {group}: threshold {threshold} of {size} members; more than half, at most all"
                    )
        if self.design.coefficients and self.evidence != "graded":
            raise ValueError("coefficients are for graded evidence; binary outcomes need a matrix of 0 and 1")
        if self.strategy.false_alarm + self.strategy.misdetection >= 1:
            raise ValueError(
                f"false_alarm {self.strategy.false_alarm:g} and misdetection {self.strategy.misdetection:g} add up to 1 or "
                "more: such a test says nothing, or the opposite"
            )
        if self.screen.utility == "recall" and self.screen.source_label is None:
            raise ValueError("utility 'recall' needs the source_label")
        if self.strategy.largest > clients:
            raise ValueError(f"largest = {self.strategy.largest} attackers of {clients} clients")
        return self

    @model_validator(mode="after")
    def _people_fit(self) -> "Plan":
        clients = len(self.design.matrix[0])
        if self.members is not None and (len(self.members) != clients or len(set(self.members)) != clients):
            raise ValueError(f"{len(self.members)} members for {clients} columns; one id each is needed, all different")
        require_distinct_ids(self.members or (), "member")
        require_distinct_ids(self.keys or (), "name of a key")
        if self.keys is not None and self.members is not None and (lost := set(self.members) - set(self.keys)):
            raise ValueError(f"no key for {', '.join(sorted(lost))}")
        if self.keys is not None and self.members is not None and (more := set(self.keys) - {*self.members, "server"}):
            raise ValueError(f"keys of {', '.join(sorted(more))}, who are no members")
        if self.keys is not None and len(set(self.keys.values())) < len(self.keys):
            raise ValueError("two of the keys are the same; everybody needs a key of their own")
        for owner, key in (self.keys or {}).items():
            require_public_key(bytes.fromhex(key), owner)
        return self

    @property
    def assignment(self) -> AnyDesign:
        """The design as the library uses it.

        Raises:
            DesignError: If the matrix is no assignment (rows of different length, an empty group).
        """
        return design_of_rows(
            self.design.matrix,
            coefficients=bool(self.design.coefficients),
            name=self.design.name,
            source=self.design.source,
        )


def make_plan(
    found: Figures, demands: Demands, *, utility: Utility = "balanced-accuracy", source_label: int | None = None
) -> Plan:
    """The plan of a design that was found for the demands, with its certificate.

    Args:
        found: A design of the Pareto set.
        demands: What it was found for; their privacy is what is promised.
        utility: Of the screen.
        source_label: For the utility `recall`.

    Raises:
        DesignError: If the design does not keep the demanded privacy.

    Examples:
        >>> from fedgt.planning import Demands, make_plan, search
        >>> demands = Demands(clients=8, privacy=2, max_malicious=1)
        >>> plan = make_plan(search(demands, effort=0.1, draws=1).recommended.figures, demands)
        >>> plan.privacy.promised, len(plan.design.matrix[0])
        (2, 8)
    """
    return Plan(
        evidence=demands.evidence,
        design=_design_part(found.design),
        privacy=_certificate(found.design, demands.privacy),
        screen=ScreenPart(utility=utility, source_label=source_label),
        strategy=StrategyPart(
            kappa=demands.kappa,
            largest=demands.max_malicious,
            false_alarm=demands.error_rate,
            misdetection=demands.error_rate,
        ),
    )


def plan_of(
    design: AnyDesign,
    *,
    privacy: int,
    evidence: Evidence,
    largest: int,
    members: tuple[str, ...],
    screen: ScreenPart | None = None,
) -> Plan:
    """The plan of a design that somebody chose, with its certificate.

    Args:
        design: Who shares a group.
        privacy: What is promised.
        evidence: What the sums become.
        largest: The most attackers that are expected.
        members: Client ids, one per column.
        screen: How a sum becomes one bit.

    Raises:
        DesignError: If the design does not keep the promise.
    """
    return Plan(
        evidence=evidence,
        design=_design_part(design),
        privacy=_certificate(design, privacy),
        screen=screen or ScreenPart.model_construct(),
        strategy=StrategyPart(largest=largest),
        members=members,
    )


def _design_part(design: AnyDesign) -> DesignPart:
    rows = tuple(tuple(row) for row in design.matrix.tolist())
    more: Literal[True] | None = True if design.matrix.max() > 1 else None
    return DesignPart(name=design.name, source=design.source, matrix=rows, coefficients=more)


def _certificate(design: AnyDesign, privacy: int) -> PrivacyPart:
    support = minimum_support(design.matrix, max_states=_PROOF_STATES)
    if support is None or support.lower < privacy:
        raise DesignError(
            f"design {design.name!r} does not keep privacy {privacy}: r = {'none' if support is None else support.lower}"
        )
    return PrivacyPart(
        promised=privacy,
        r=support.lower,
        exact=support.exact,
        combination={f"u{group}": str(b) for group, b in enumerate(support.combination) if b},
        clients=support.clients,
    )


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan as JSON: one line per row of the matrix, fields that are not set left out.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.planning import Demands, make_plan, search, write_plan
        >>> demands = Demands(clients=8, privacy=2, max_malicious=1)
        >>> plan = make_plan(search(demands, effort=0.1, draws=1).recommended.figures, demands)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_plan(Path(folder) / "plan.json", plan)
        ...     [path.name for path in Path(folder).iterdir()]
        ['plan.json']
    """
    write_text(path, plan_text(plan))


def plan_text(plan: Plan) -> str:
    """What `write_plan` writes."""
    content: dict[str, Any] = plan.model_dump(mode="json", exclude_none=True)
    rows = content["design"].pop("matrix")
    content["design"]["matrix"] = "MATRIX"
    text = json.dumps(content, indent=2, ensure_ascii=False)
    lines = ",\n      ".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return text.replace('"MATRIX"', f"[\n      {lines}\n    ]", 1) + "\n"


def read_plan(path: Path) -> Plan:
    """Read a plan and check it: its form, that its parts fit, and that the design keeps what is promised.

    Raises:
        SpecError: If the file cannot be read, a field is missing, unknown or wrong, or the stated privacy is not that of the
            matrix; the message names the field.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.planning import Demands, make_plan, read_plan, search, write_plan
        >>> demands = Demands(clients=8, privacy=2, max_malicious=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "plan.json"
        ...     write_plan(path, make_plan(search(demands, effort=0.1, draws=1).recommended.figures, demands))
        ...     read_plan(path).privacy.promised  # the design is checked against the promise
        2
    """
    text = read_text(path, "plan", largest=_LARGEST_FILE)
    try:
        json.loads(text, object_pairs_hook=_without_repetition)
        plan = Plan.model_validate_json(text)
        design = plan.assignment
        _require_certificate(plan, design)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise SpecError(f"plan {path}: {where}: {first['msg']}") from error
    except DesignError as error:
        raise SpecError(f"plan {path}: {error}") from error
    except (json.JSONDecodeError, ValueError) as error:
        raise SpecError(f"plan {path}: not valid JSON ({error})") from error
    except RecursionError as error:
        raise SpecError(f"plan {path}: nested too deeply") from error
    return plan


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; one that says a thing twice says nothing certain, and readers differ in what they take from it."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise DesignError(f"the field {max(names, key=names.count)!r} stands there twice")
    return found


def plan_schema() -> Mapping[str, Any]:
    """The JSON schema of `plan.json`.

    Examples:
        >>> from fedgt.planning import plan_schema
        >>> "design" in plan_schema()["properties"]
        True
    """
    return Plan.model_json_schema()


def _require_certificate(plan: Plan, design: AnyDesign) -> None:
    """The promise and r are proved again from the matrix; the combination must mix exactly the stated clients."""
    stated = plan.privacy
    support = minimum_support(design.matrix, enough=stated.promised)
    if support is None or support.lower < stated.promised:
        raise DesignError(
            f"privacy {stated.promised} is promised, but a combination of its groups mixes fewer clients (or it could not "
            "be proved): the matrix was changed, or the promise is wrong"
        )
    if stated.r > stated.promised:
        support = minimum_support(design.matrix, enough=stated.r, max_states=_PROOF_STATES) or support
        if support.lower < stated.r:
            raise DesignError(
                f"privacy.r = {stated.r}, but only {support.lower} can be proved from the matrix, and a combination mixes "
                f"{support.upper} clients"
            )
    groups = {f"u{group}": row for group, row in enumerate(design.matrix.tolist())}
    mixed = [Fraction(0)] * design.clients
    for name, text in plan.privacy.combination.items():
        try:
            factor = Fraction(text)
        except (ValueError, ZeroDivisionError) as error:
            raise DesignError(f"privacy.combination: {text!r} is not a rational number") from error
        if name not in groups:
            raise DesignError(f"privacy.combination: there is no group {name!r}")
        mixed = [old + factor * bit for old, bit in zip(mixed, groups[name], strict=True)]
    if tuple(np.flatnonzero([value != 0 for value in mixed]).tolist()) != plan.privacy.clients:
        raise DesignError("privacy.combination does not mix the clients that privacy.clients lists")
    if len(plan.privacy.clients) < plan.privacy.r or (
        plan.privacy.exact and len(plan.privacy.clients) != plan.privacy.r
    ):
        raise DesignError(
            f"privacy.r = {plan.privacy.r}, but the combination mixes {len(plan.privacy.clients)} clients"
        )
