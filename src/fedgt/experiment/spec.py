"""What an experiment is: a frozen specification, read from TOML, with every default written out."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedgt.decode import Estimator, Strategy
from fedgt.decode import Method as DecodingMethod
from fedgt.design import read_design
from fedgt.errors import DesignError, SpecError
from fedgt.experiment.spec_errors import explained, syntax_error
from fedgt.text_file import read_text

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
ModelName = Literal["linear", "resnet18", "efficientnet-b0"]
Placement = Literal["uniform", "nested", "nested-neither", "nested-one", "nested-both"]
Method = Literal["fedgt", "no-defence", "oracle", "rfa"]
Stage = Literal["absent", "keys", "shares", "masked", "unmask"]


class _Section(BaseModel):
    # Strict: true is not the number 1, "4" is not 4; a promise must be what was written.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class DataSpec(_Section):
    """What is learnt, and how it is shared out."""

    name: DatasetName = Field(
        "digits", description="The data set; `-lite0` are features of a frozen network, see `fedgt features`."
    )
    partition: Literal["iid", "dirichlet", "centres", "single-class"] = Field(
        "iid",
        description="How training samples are shared out; `centres`: by where they come from, the largest share halved "
        "until there are enough (data sets with centres only). `single-class`: iid, but the fifth client holds only samples "
        "of the last class.",
    )
    concentration: float = Field(1.0, gt=0, description="Of the Dirichlet partition; small means heterogeneous.")
    validation: int = Field(100, ge=1, description="Samples of the server's validation set; nobody trains on them.")


class FederationSpec(_Section):
    """Who takes part, and for how long."""

    clients: int = Field(15, ge=1, description="Number of clients.")
    rounds: int = Field(10, ge=1, description="Communication rounds.")
    weighting: Literal["samples", "equal"] = Field("samples", description="Weights of all sums.")


class TrainingSpec(_Section):
    """Local training: minibatch SGD on the loss of the one-layer network."""

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


class AttackSpec(_Section):
    """What the malicious clients do. Simulation knowledge: it never reaches the defence."""

    kind: Literal["label-flip", "label-permutation", "random-labels"] = Field(
        "label-flip", description="Targeted, or untargeted: every label moved by one, or drawn anew."
    )
    malicious: int = Field(0, ge=0, description="n_m.")
    placement: Placement = Field(
        "uniform",
        description="`uniform`: drawn anew for each n_m. `nested`: those of a smaller n_m are among those of a larger one; "
        "`nested-neither`, `nested-one`, `nested-both`: and so many of the two clients that hold the most unusual centre.",
    )
    source: int = Field(1, ge=0, description="Label under attack (label-flip).")
    target: int = Field(7, ge=0, description="What it is flipped to (label-flip).")
    require_clean_group: bool = Field(
        False, description="Redraw the malicious clients until some group has none of them, as the published code does."
    )


class DesignSpec(_Section):
    """Who shares a group."""

    name: str = Field(
        "auto",
        description="A named design, or the name of the given matrix; `auto` is the default design for this number of "
        "clients and kind of evidence.",
    )
    file: str | None = Field(
        None, description="A CSV or JSON matrix instead, beside the specification; the resolved one holds its rows."
    )
    matrix: tuple[tuple[int, ...], ...] | None = Field(None, description="The rows themselves, 0 or 1, one per group.")

    @field_validator("matrix", mode="before")
    @classmethod
    def _rows_as_tuples(cls, rows: object) -> object:
        """TOML and JSON have lists only; the strict check of the numbers stays."""
        if isinstance(rows, list):
            return tuple(tuple(row) if isinstance(row, list) else row for row in rows)
        return rows


class ScreenSpec(_Section):
    """The group test."""

    kind: Literal["graded", "clusters", "significant-clusters"] = Field(
        "graded",
        description="Graded evidence; or the paper's clusters, one bit a group; or those where groups differ significantly.",
    )
    round: int = Field(1, ge=1, description="The round in which groups are tested, from 1.")
    most_rounds: int = Field(
        3, ge=1, description="Test rounds at most; a further one only while clients stay undecided."
    )
    more_groups: int = Field(4, ge=3, description="Groups of a further test round at most.")
    features: Literal["weights", "outputs", "margins"] = Field(
        "weights",
        description="What graded evidence compares: the classification layer; where a deep network is trained from end to "
        "end, the losses and mean outputs of the classes on the validation set; where honest clients differ by nature, the "
        "margins of all pairs of labels; see docs/graded-evidence.md and docs/heterogeneity.md.",
    )
    utility: Literal["auto", "recall", "top1", "balanced-accuracy"] = Field(
        "auto",
        description="What is measured on the validation set. `auto`: the loss of every class for graded evidence, balanced "
        "accuracy for clusters; `recall` needs `source_label`.",
    )
    source_label: int | None = Field(
        None, ge=0, description="The label that the user believes to be under attack; the paper's informed choice."
    )
    layer: str = Field("weight", description="The tensor that is the classification layer.")
    silhouette_threshold: float = Field(
        0.6, ge=-1, le=1, description="Below it the groups form one cluster; the paper has 0 for heterogeneous clients."
    )
    restarts: int = Field(10, ge=1, description="Starting positions of k-means.")


class DecodeSpec(_Section):
    """How suspects are named and what follows."""

    strategy: Literal["auto"] | Strategy = Field(
        "auto",
        description="For clusters; `auto` is `bayes`. Graded evidence is decided at minimum expected cost (`auto`).",
    )
    nobody: float = Field(0.5, gt=0, lt=1, description="Graded evidence: prior probability that nobody is malicious.")
    undecided: float = Field(
        0.02, gt=0, le=0.5, description="Graded evidence: posteriors from this to one minus this are not decided."
    )
    on_undecided: Literal["test-again", "decide", "keep"] = Field(
        "test-again", description="Graded evidence: what becomes of undecided clients; see docs/graded-evidence.md."
    )
    estimator: Estimator = Field(
        "negatives", description="n_m-hat from the number of negative groups (the paper's), or from all outcomes."
    )
    method: DecodingMethod = Field("exact", description="Of the decoder; `auto` may fall back to belief propagation.")
    false_alarm: float = Field(0.05, ge=0, le=1, description="Assumed probability that a clean group tests positive.")
    misdetection: float = Field(
        0.05, ge=0, le=1, description="Assumed probability that a contaminated group tests negative."
    )
    beta: float = Field(0.5, ge=0, le=1, description="Weight of a misdetection against a false alarm.")
    kappa: float = Field(0.2, ge=0, le=1, description="Defines n_m^max.")
    prevalence: float | None = Field(
        None, ge=0, le=1, description="P(malicious) of every client, instead of an estimate."
    )
    max_malicious: int | None = Field(
        None,
        ge=0,
        description="n_m^max itself; if it is not given, graded evidence takes a minority, (n - 1) / 2, or as many as can "
        "be searched.",
    )
    on_undecidable: Literal["stop", "keep-all", "follow-decoder"] = Field(
        "stop", description="What happens when no group is clean, or everybody is flagged."
    )
    on_untested: Literal["keep", "exclude-silent", "exclude"] = Field(
        "exclude-silent", description="What becomes of clients without a tested group; see docs/decoding.md."
    )
    after_test: Literal["next-round", "negative-groups", "largest-sum", "same-round"] = Field(
        "next-round", description="What becomes of the test round's local models; see docs/privacy.md."
    )
    allow_below_promise: bool = Field(False, description="Accept that `same-round` breaks the promised privacy.")


class SecureAggregationSpec(_Section):
    """Fixed point and transport."""

    clip: float = Field(8.0, gt=0, description="Entries of an update are clipped to +-clip, and counted.")
    fraction_bits: int = Field(24, ge=1, le=52, description="The step is 2^-fraction_bits.")
    timeout_seconds: float = Field(60.0, gt=0, le=86_400, description="Per stage.")
    colluders: int = Field(1, ge=0, description="Clients that may help a server which lies; thresholds follow from it.")
    workers: int = Field(1, ge=1, description="Clients that work at the same time in this process.")


class RfaSpec(_Section):
    """The baseline RFA."""

    iterations: int = Field(3, ge=1, description="Weiszfeld steps a round, one secure sum each.")
    smoothing: float = Field(1e-6, gt=0, description="nu, in the unit of the update's norm.")


class FaultSpec(_Section):
    """A client that leaves: simulation of dropouts."""

    client: int = Field(ge=0, description="0-based client number.")
    round: int = Field(ge=1, description="From 1.")
    stage: Stage = Field("absent", description="`absent` from the start, or the stage at which it falls silent.")


_CAME_LATER: Mapping[tuple[str, str], Any] = {("training", "model"): "linear", ("training", "pretrained"): False}
"""Keys that the hash leaves out at these values."""


class ExperimentSpec(_Section):
    """A whole run. `privacy` has no default on purpose: the promise is the user's to make."""

    method: Method = Field("fedgt", description="The defence, or what it is compared with.")
    seed: int = Field(0, ge=0, description="Of data shares, attackers, seats, initial model and sample order.")
    privacy: int = Field(ge=1, description="The promised r: no combination of what is revealed mixes fewer clients.")
    data: DataSpec = DataSpec()
    federation: FederationSpec = FederationSpec()
    training: TrainingSpec = TrainingSpec()
    attack: AttackSpec = AttackSpec()
    design: DesignSpec = DesignSpec()
    screen: ScreenSpec = ScreenSpec()
    decode: DecodeSpec = DecodeSpec()
    secure_aggregation: SecureAggregationSpec = SecureAggregationSpec()
    rfa: RfaSpec = RfaSpec()
    faults: tuple[FaultSpec, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _consistent(self) -> "ExperimentSpec":
        n = self.federation.clients
        if self.attack.malicious > n:
            raise ValueError(f"attack.malicious = {self.attack.malicious}, but there are {n} clients")
        if self.privacy > n:
            raise ValueError(f"privacy = {self.privacy}, but there are {n} clients")
        if self.screen.kind == "graded":
            self._check_graded()
        if self.screen.utility == "recall" and self.screen.source_label is None:
            raise ValueError(
                "screen.utility = 'recall' needs screen.source_label, or take 'top1' or 'balanced-accuracy'"
            )
        if self.method == "fedgt" and self.screen.round > self.federation.rounds:
            raise ValueError(f"screen.round = {self.screen.round}, but there are {self.federation.rounds} rounds")
        if self.decode.max_malicious is not None and self.decode.max_malicious > n:
            raise ValueError(f"decode.max_malicious = {self.decode.max_malicious}, but there are {n} clients")
        if self.design.file is not None and self.design.matrix is not None:
            raise ValueError("design.file and design.matrix are both given; keep one")
        self._check_faults()
        return self

    def _check_graded(self) -> None:
        binary = "graded evidence, or set screen.kind = 'clusters' for one bit a group"
        if self.screen.utility != "auto":
            raise ValueError(f"screen.utility = {self.screen.utility!r} is not for {binary}")
        if self.decode.strategy != "auto":
            raise ValueError(f"decode.strategy = {self.decode.strategy!r} is not for {binary}")
        if self.decode.prevalence is not None:
            raise ValueError(f"decode.prevalence is not for {binary}; decode.nobody is its prior")
        if self.decode.after_test == "negative-groups":
            raise ValueError(f"decode.after_test = 'negative-groups' is not for {binary}")

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
        for (section, key), unchanged in _CAME_LATER.items():
            if content[section][key] == unchanged:
                del content[section][key]
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
    """
    text = read_text(path, "specification")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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
        design = read_design((beside or Path()) / spec.design.file)
    except (DesignError, SpecError) as error:
        raise SpecError(f"{origin}: design.file = {spec.design.file!r}: {error}") from error
    rows = tuple(tuple(row) for row in design.matrix.tolist())
    return spec.model_copy(update={"design": DesignSpec(name=design.name, matrix=rows)})
