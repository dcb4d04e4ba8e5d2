"""What an experiment is: a frozen specification, read from TOML, with every default written out."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from fedgt.design import AnyDesign, read_design, read_rows
from fedgt.errors import DesignError, SpecError
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings, SumSettings, Weighting
from fedgt.options import Options, explained, syntax_error
from fedgt.text_file import read_text
from fedgt.train.behaviour import Knowledge
from fedgt.train.failures import Failure

PAPER: Mapping[str, str] = {"design.name": "auto", "screen.kind": "clusters", "screen.utility": "auto"}
"""Dotted keys that restore the paper's method: its designs (15 x 8, 30 x 12), its screen, and, by `decode.strategy`, one of
its two strategies `count` and `delta`."""

DatasetName = Literal[
    "digits",
    "mnist",
    "fashion-mnist",
    "cifar10",
    "isic2019",
    "isic2019-flamby",
    "cifar10-lite0",
    "isic2019-lite0",
    "isic2019-lite0-flamby",
]
DEFAULT_DATA: DatasetName = "digits"
ModelName = Literal["linear", "resnet18", "efficientnet-b0"]
Placement = Literal["uniform", "nested", "nested-neither", "nested-one", "nested-both"]
Method = Literal["fedgt", "no-defence", "oracle", "rfa"]
AttackName = Literal[
    "label-flip",
    "label-permutation",
    "random-labels",
    "backdoor",
    "distributed-backdoor",
    "sign-flip",
    "gaussian",
    "alie",
    "ipm",
    "free-rider",
    "min-max",
]
Stage = Literal["absent", "keys", "shares", "masked", "unmask"]


class DataSpec(Options):
    """What is learnt, and how it is shared out."""

    name: DatasetName = Field(
        DEFAULT_DATA, description="The data set; `-lite0` are features of a frozen network, see `fedgt features`."
    )
    partition: Literal["iid", "dirichlet", "centres", "single-class"] = Field(
        "iid",
        description="How training samples are shared out; `centres`: by where they come from, the largest share halved "
        "until there are enough (data sets with centres only). `single-class`: iid, but the fifth client holds only samples "
        "of the last class.",
    )
    concentration: float = Field(1.0, gt=0, description="Of the Dirichlet partition; small means heterogeneous.")
    validation: int = Field(100, ge=1, description="Samples of the server's validation set; nobody trains on them.")


class FederationSpec(Options):
    """Who takes part, and for how long."""

    clients: int = Field(15, ge=1, description="Number of clients.")
    rounds: int = Field(10, ge=1, description="Communication rounds.")
    weighting: Weighting = Field("samples", description="Weights of all sums.")


RECIPES: Mapping[str, Mapping[str, Any]] = {"digits": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5}}
"""Data set -> how it is trained where a specification says nothing about training. A hundred samples a client need more
steps than the thousands of the others, for which the defaults are."""


class TrainingSpec(Options):
    """Local training: minibatch SGD. Without this section `digits` gets learning rate 0.05, batches of 8, 5 local epochs."""

    learning_rate: float = Field(0.01, gt=0, description="Of plain SGD.")
    batch_size: int = Field(64, ge=1, description="Samples a step; the last batch may be shorter.")
    local_epochs: int = Field(1, ge=1, description="Passes over the own samples in a round.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Of the velocity; every round starts at rest.")
    weight_decay: float = Field(0.0, ge=0, description="This times the parameters is added to the gradient.")
    focusing: float = Field(0.0, ge=0, description="gamma of the focal loss, 0 or at least 1; 0 is the cross-entropy.")
    class_weights: tuple[float, ...] | None = Field(
        None, description="Weight of each class in the loss; ones if not given."
    )

    model: ModelName = Field(
        "linear", description="The one-layer network, or an image network of torchvision (needs the extra `train`)."
    )
    pretrained: bool = Field(
        False,
        description="Image networks: start from torchvision's ImageNet weights, out of the data folder or its cache.",
    )
    device: str = Field("auto", description="Image networks: cpu, cuda, or a GPU where there is one.")

    @field_validator("class_weights", mode="before")
    @classmethod
    def _weights_as_tuple(cls, weights: object) -> object:
        return tuple(weights) if isinstance(weights, list) else weights


class AttackersSpec(Options):
    """Malicious clients that all do the same. Simulation knowledge: it never reaches the defence."""

    kind: AttackName = Field(
        "label-flip",
        description="What they do to their labels (`label-flip`, `label-permutation`, `random-labels`), to their pictures "
        "(`backdoor`, `distributed-backdoor`), or to the update that they send (the others).",
    )
    malicious: int = Field(0, ge=0, description="How many clients do so.")
    source: int = Field(1, ge=0, description="Label under attack (label-flip).")
    target: int = Field(
        7, ge=0, description="What it is flipped to (label-flip), or what the trigger says (backdoors)."
    )
    share: float = Field(0.5, gt=0, le=1, description="Which part of its samples a backdoor changes.")
    strength: float | None = Field(
        None, description="Of an attack on the update, in the unit of its paper; each has its own default."
    )
    boost: float = Field(
        1.0, gt=0, description="The update is multiplied by this; the number of clients replaces the model."
    )
    knowledge: Knowledge = Field(
        "everybody",
        description="Whose honest updates an attack on the update knows: everybody's, or the attackers' own.",
    )
    first_round: int = Field(1, ge=1, description="They are honest before this round: sleepers.")
    last_round: int | None = Field(None, ge=1, description="They are honest after this round.")
    growth: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Which part of the poisoned update is sent in `first_round`, and added in each round after it, until it "
        "is whole; the rest is the honest update. 1 begins with all of it.",
    )


class AttackSpec(AttackersSpec):
    """What the malicious clients do, and who they are. Simulation knowledge: it never reaches the defence."""

    placement: Placement = Field(
        "uniform",
        description="`uniform`: drawn anew for each n_m. `nested`: those of a smaller n_m are among those of a larger one; "
        "`nested-neither`, `nested-one`, `nested-both`: and so many of the two clients that hold the most unusual centre.",
    )
    require_clean_group: bool = Field(
        False, description="Redraw the malicious clients until some group has none of them, as the published code does."
    )
    further: tuple[AttackersSpec, ...] = Field(
        (), strict=False, description="Other clients that attack otherwise, and are no part of `malicious`."
    )

    @property
    def everybody(self) -> int:
        """All malicious clients, of all kinds."""
        return self.malicious + sum(one.malicious for one in self.further)


class FailureSpec(Options):
    """Honest clients whose data or software is broken. They are wrong without malice."""

    kind: Failure = Field(
        description="Negatives of all pictures; labels in a wrong order; or the first trained model, sent for ever."
    )
    clients: int = Field(1, ge=1, description="How many clients, drawn among the honest.")


class DesignSpec(Options):
    """Who shares a group."""

    name: str = Field(
        "auto",
        description="A named design, or the name of the given matrix; `auto` is the default design for this number of "
        "clients, promise and kind of evidence.",
    )
    file: str | None = Field(
        None,
        description="A CSV or JSON matrix or a plan.json, beside the specification; the resolved one holds its rows.",
    )
    matrix: tuple[tuple[int, ...], ...] | None = Field(
        None, description="The rows themselves, 0 or 1 (or coefficients), one per group."
    )
    coefficients: bool = Field(
        False,
        description="Whether clients may multiply their updates by whole numbers before these are masked: entries up to 255 "
        "of the matrix or file, or such a default design; see docs/howto/choose-a-design.md.",
    )

    @field_validator("matrix", mode="before")
    @classmethod
    def _rows_as_tuples(cls, rows: object) -> object:
        """TOML and JSON have lists only; the strict check of the numbers stays."""
        if isinstance(rows, list):
            return tuple(tuple(row) if isinstance(row, list) else row for row in rows)
        return rows


class SecureAggregationSpec(SumSettings):
    """Fixed point and transport."""

    workers: int = Field(1, ge=1, description="Clients that work at the same time in this process.")


class FaultSpec(Options):
    """A client that leaves: simulation of dropouts."""

    client: int = Field(ge=0, description="0-based client number.")
    round: int = Field(ge=1, description="From 1.")
    stage: Stage = Field("absent", description="`absent` from the start, or the stage at which it falls silent.")


_CAME_LATER: Mapping[tuple[str, ...], Any] = {
    ("training", "model"): "linear",
    ("training", "pretrained"): False,
    ("secure_aggregation", "colluders"): 1,
    ("secure_aggregation", "largest_share"): 1.0,
    ("attack", "share"): 0.5,
    ("attack", "strength"): None,
    ("attack", "boost"): 1.0,
    ("attack", "knowledge"): "everybody",
    ("attack", "first_round"): 1,
    ("attack", "last_round"): None,
    ("attack", "growth"): 1.0,
    ("attack", "further"): [],
    ("failures",): [],
    ("decode", "on_suspicious"): "keep",
    ("decode", "on_silent"): "report",
    ("design", "coefficients"): False,
    ("screen", "schedule"): "first",
    ("screen", "false_exclusions"): 0.05,
    ("screen", "unannounced"): 0.05,
    ("screen", "roll_back"): False,
    ("screen", "readmit_after"): 0,
}
"""Keys that the hash leaves out at these values."""


class ExperimentSpec(Options):
    """A whole run. `privacy` has no default on purpose: the promise is the user's to make.

    Examples:
        >>> from fedgt.experiment import make_spec
        >>> spec = make_spec({"privacy": 4, "attack": {"malicious": 3}})
        >>> spec.attack.malicious, spec.screen.kind
        (3, 'graded')
    """

    method: Method = Field("fedgt", description="The defence, or what it is compared with.")
    seed: int = Field(0, ge=0, description="Of data shares, attackers, seats, initial model and sample order.")
    privacy: int = Field(ge=1, description="The promised r: no combination of what is revealed mixes fewer clients.")
    data: DataSpec = DataSpec()
    federation: FederationSpec = FederationSpec()
    training: TrainingSpec = TrainingSpec()
    attack: AttackSpec = AttackSpec()
    design: DesignSpec = DesignSpec()
    screen: ScreenSettings = ScreenSettings()
    decode: DecodeSettings = DecodeSettings()
    secure_aggregation: SecureAggregationSpec = SecureAggregationSpec()
    rfa: RfaSettings = RfaSettings()
    faults: tuple[FaultSpec, ...] = Field((), strict=False)
    failures: tuple[FailureSpec, ...] = Field((), strict=False)

    @model_validator(mode="before")
    @classmethod
    def _recipe(cls, given: Any) -> Any:
        """What suits the data set, where nothing is said about training."""
        if not isinstance(given, Mapping) or given.get("training"):
            return given
        data = given.get("data", {})
        name = data.get("name", DEFAULT_DATA) if isinstance(data, Mapping) else getattr(data, "name", "")
        recipe = RECIPES.get(name) if isinstance(name, str) else None
        return given if recipe is None else {**given, "training": recipe}

    @model_validator(mode="after")
    def _consistent(self) -> "ExperimentSpec":
        n = self.federation.clients
        if self.attack.everybody > n:
            further = (
                f" with {self.attack.everybody - self.attack.malicious} further ones" if self.attack.further else ""
            )
            raise ValueError(f"attack.malicious = {self.attack.malicious}{further}, but there are {n} clients")
        if (failing := sum(one.clients for one in self.failures)) > n - self.attack.everybody:
            raise ValueError(f"failures: {failing} clients, but only {n - self.attack.everybody} are honest")
        if self.privacy > n:
            raise ValueError(f"privacy = {self.privacy}, but there are {n} clients")
        self.decode.require_for(self.screen)
        if self.method == "fedgt" and self.screen.round > self.federation.rounds:
            raise ValueError(f"screen.round = {self.screen.round}, but there are {self.federation.rounds} rounds")
        if self.decode.max_malicious is not None and self.decode.max_malicious > n:
            raise ValueError(f"decode.max_malicious = {self.decode.max_malicious}, but there are {n} clients")
        if self.design.file is not None and self.design.matrix is not None:
            raise ValueError("design.file and design.matrix are both given; keep one")
        self._check_faults()
        return self

    def _check_faults(self) -> None:
        n, rounds = self.federation.clients, self.federation.rounds
        seen: set[tuple[int, int]] = set()
        for fault in self.faults:
            if fault.client >= n:
                raise ValueError(f"faults: client {fault.client}, but clients are numbered 0 to {n - 1}")
            if fault.round > rounds:
                raise ValueError(f"faults: round {fault.round}, but there are {rounds} rounds")
            if (fault.client, fault.round) in seen:
                raise ValueError(f"faults: client {fault.client} has two faults in round {fault.round}; keep one")
            seen.add((fault.client, fault.round))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the resolved specification: the key of its results.

        How the work is carried out (workers, timeout, device) is left out, and so is a key that came later while it has
        the value that changes nothing: results of earlier versions keep their key.
        """
        content = self.model_dump(
            mode="json", exclude={"secure_aggregation": {"workers", "timeout_seconds"}, "training": {"device"}}
        )
        for (*sections, key), unchanged in _CAME_LATER.items():
            place = content[sections[0]] if sections else content
            if place[key] == unchanged:
                del place[key]
        for one in content["attack"].get("further", ()):
            if one["growth"] == _CAME_LATER["attack", "growth"]:
                del one["growth"]
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def to_toml(self) -> str:
        """The resolved specification: every default written out; values that are not set are left out."""
        import tomli_w

        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def read_spec(path: Path, overrides: Mapping[str, Any] | None = None) -> ExperimentSpec:
    """Read a specification file.

    Args:
        path: TOML.
        overrides: Dotted key -> value, such as {"decode.strategy": "count"}.

    Raises:
        SpecError: Names the file and the line or key, the value, what was needed, and the nearest valid spelling.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import read_spec
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "spec.toml"
        ...     _ = path.write_text("privacy = 4")
        ...     spec = read_spec(path, {"seed": 7})
        >>> spec.privacy, spec.seed
        (4, 7)
    """
    text = read_text(path, "specification")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(syntax_error(path, text, error)) from error
    return make_spec(content, overrides, origin=str(path), beside=path.parent)


def make_spec(
    content: Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    origin: str = "specification",
    beside: Path | None = None,
) -> ExperimentSpec:
    """A specification from nested mappings; see `read_spec`.

    A design file is read here, relative to the folder `beside`, and replaced by its rows: the resolved specification and its
    hash hold the matrix itself.

    Examples:
        >>> from fedgt.experiment import make_spec
        >>> spec = make_spec({"privacy": 4}, {"federation.rounds": 2})
        >>> spec.federation.rounds, spec.data.name
        (2, 'digits')
    """
    merged = json.loads(json.dumps(content, default=str))
    for key, value in (overrides or {}).items():
        place = merged
        *sections, last = key.split(".")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise SpecError(f"{origin}: {key!r} cannot be set, {section!r} is a value, not a section")
        place[last] = value
    try:
        spec = ExperimentSpec.model_validate(merged)
    except ValidationError as error:
        raise SpecError(f"{origin}: {explained(error, ExperimentSpec, overrides or ())}") from error
    if spec.design.file is None:
        return spec
    try:
        design = _design_in((beside or Path()) / spec.design.file, spec.privacy, coefficients=spec.design.coefficients)
    except (DesignError, SpecError) as error:
        raise SpecError(f"{origin}: design.file = {spec.design.file!r}: {error}") from error
    rows = tuple(tuple(row) for row in design.matrix.tolist())
    with_coefficients = spec.design.coefficients
    return spec.model_copy(update={"design": DesignSpec(name=design.name, matrix=rows, coefficients=with_coefficients)})


def _design_in(path: Path, privacy: int, *, coefficients: bool) -> AnyDesign:
    """The design of a matrix or of a plan, which must not promise more than the run."""
    if path.suffix.lower() == ".json":
        try:
            content = json.loads(read_text(path, "design file"))
        except (ValueError, RecursionError):
            content = None  # said below
        if isinstance(content, dict) and isinstance(content.get("design"), dict):
            from fedgt.planning import read_plan

            plan = read_plan(path)
            if privacy < plan.privacy.promised:
                raise SpecError(f"the plan promises {plan.privacy.promised}, but privacy = {privacy}: ask for no less")
            if plan.design.coefficients and not coefficients:
                raise SpecError("the plan has coefficients: set design.coefficients = true if they are meant")
            return plan.assignment
    return read_rows(path) if coefficients else read_design(path)
