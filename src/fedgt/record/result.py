"""What a run leaves: one documented JSON object (docs/result.schema.json) and a table of its rounds.

Of a real run and of a simulated one it is the same; what only a simulation knows is null in the other.

Fields are only ever added. Infinite numbers are the strings "inf" and "-inf", unknown ones are null.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedgt.defaults import NO_LIMIT
from fedgt.durable_file import write_durably
from fedgt.record.verdict_words import VerdictName

SCHEMA_VERSION = 1

Truth = Literal["malicious", "faulty", "benign"]
"""Of a client in a simulation; a faulty one is honest, but its data or software is broken."""

RunStatus = Literal["finished", "stopped", "failed"]

JsonNumber = float | Literal["inf", "-inf"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Which run it is.

    Attributes:
        method: `fedgt`, or what it is compared with.
        seed: Of the seats, and in a simulation of all else.
        spec_hash: SHA-256 of the resolved specification, or of the settings of a real run.
        rounds: How many are to be held.
    """

    method: str
    seed: int
    spec_hash: str
    rounds: int


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClientRow(_Row):
    """The decision about one client. `truth` exists in simulations only and is never shown to the defence."""

    id: str
    excluded: bool
    verdict: VerdictName = Field(description="What each word means: `fedgt.record.verdict_words.MEANINGS`.")
    reason: str
    posterior: JsonNumber = Field(description="P(malicious | outcomes); null when nothing was tested.")
    log_odds: JsonNumber = Field(description="log P(benign | t) - log P(malicious | t), in nats.")
    groups: tuple[int, ...] = Field(description="0-based groups of the last test that the client sits in.")
    decided_in: int | None = Field(
        None, description="The round of this verdict: of a client that is left out, the one in which it was named."
    )
    truth: Truth | None = None


class RoundRow(_Row):
    """One communication round, and how good the model is after it (`measured_on` says on which samples)."""

    round: int
    top1_accuracy: float | None = Field(description="Null where the server has no validation set.")
    balanced_accuracy: float | None
    attack_accuracy: float | None = Field(
        description="How often the attack has its way: label flips and backdoors only."
    )
    secure_sums: int = Field(description="Sums opened in this round.")
    bytes_up: int = Field(description="From the clients, all stages, real messages.")
    bytes_down: int
    participants: int
    purpose: str = Field(description="`training`, `test` or `weiszfeld`.")


class AggregateRow(_Row):
    """One aggregate that the server asked for."""

    round: int
    purpose: str
    members: tuple[str, ...]
    weights: tuple[float, ...] = Field(description="Real weights in member order; empty when only clients know them.")
    status: Literal["open", "faulty", "erased", "refused"]
    reason: str
    dropped: dict[str, str]
    model: str = Field("", description="SHA-256 of the global model: sums about one model can be combined.")


class PrivacyRow(_Row):
    """What can be claimed about everything that was opened."""

    promised: int
    strict: int | None = Field(description="Smallest proved r over all sets of local models.")
    cautious: int | None = Field(description="Proved r of all test rows together, as if updates repeated.")
    with_training: int | None = Field(description="As cautious, with training sums: reported, never enforced.")
    overridden: bool = Field(description="A sum was opened below the promise because the user said so by name.")
    colluders: int = Field(0, description="Clients that may help a server which lies.")
    honest: int | None = Field(
        None, description="Honest clients that any combination mixes at least: strict - colluders."
    )
    shares: dict[str, float] = Field(
        {},
        description="Client -> the share of what is particular to it (its difference from the mean) that the sums about "
        "one set of local models explain, the largest over the sets; if clients differ equally and independently.",
    )
    share_mean: float | None = Field(
        None, description="Mean of the clients' shares about one set of local models, the largest."
    )
    share_helped: float | None = Field(
        None,
        description="The largest share of any client if the colluders help the server; null if nothing was opened, or too "
        "many may collude to try all sets of them.",
    )
    share_cautious_largest: float | None = Field(
        None, description="The largest share of all test rows together, as if updates repeated."
    )
    share_cautious_mean: float | None = Field(None, description="Its mean over the clients.")
    largest_share: float = Field(NO_LIMIT, description="The promised limit of any share; 1 is none.")
    weights: dict[str, float] = Field(
        {}, description="Client -> its weight in every mean, without the coefficients of the sums of a test."
    )
    assumption: str = Field("", description="What the numbers rest on beyond arithmetic; empty when on nothing.")


class SetRow(_Row):
    """A set of clients that explains the sums."""

    clients: tuple[str, ...]
    probability: JsonNumber = Field(description="Posterior; null for the union of two attacks.")


class LabelRow(_Row):
    """What the attack seems to aim at, from the validation loss of each class."""

    kind: Literal["targeted", "untargeted", "none"]
    labels: tuple[int, ...] = Field(description="Classes that get significantly worse, worst first.")
    rises: tuple[float, ...] = Field(description="Loss of malicious clients alone less that of the others, in nats.")
    p_values: tuple[float, ...] = Field(description="Corrected for the number of classes (Holm).")


class PowerRow(_Row):
    """How weak an attack the sums of a test would still have shown, found by simulation (`smallest_named_shift`)."""

    attackers: int = Field(description="How many push together, at random places.")
    shift: JsonNumber = Field(
        description="The smallest common push with which all of them are named in 9 of 10 placements, in units of the "
        "honest spread: an honest client's typical distance from the mean. Null where nothing up to 100 is named."
    )


class GradedRow(_Row):
    """Graded evidence of a test round (together with earlier ones)."""

    against_nobody: JsonNumber = Field(description="Log-odds of some attack against none, in nats, prior included.")
    count_posterior: tuple[JsonNumber, ...] = Field(description="Of n_m = 0, 1, ...")
    best_sets: tuple[SetRow, ...] = Field(description="The most probable sets; several probable ones are a tie.")
    attacks: int = Field(description="Lines found: 0, 1 or 2.")
    signal: JsonNumber = Field(description="Signal-to-noise ratio of the strongest line.")
    effective_features: JsonNumber = Field(
        description="Features that vary independently: few for heterogeneous clients."
    )
    loss: tuple[JsonNumber, ...] = Field(description="Balanced validation loss of each group mean, in nats.")
    label: LabelRow | None


class TestRow(_Row):
    """The group test. `truth` (which groups hold a malicious client) exists in simulations only."""

    __test__ = False  # not a pytest class

    round: int
    kind: Literal["graded", "binary"] = "binary"
    outcomes: str = Field(
        description="One character a group: 0 negative, 1 positive, ? erased; empty for graded evidence."
    )
    truth: str | None = Field(description="By the members who were really in each sum; simulation only.")
    estimated_malicious: int | None = Field(description="n_m-hat; null when nothing was tested.")
    strategy: str
    status: str
    reason: str
    screen_status: str
    screen_reason: str
    utilities: tuple[JsonNumber, ...]
    projection: tuple[JsonNumber, ...]
    clusters: tuple[int, ...]
    design: str
    groups: tuple[tuple[str, ...], ...] = Field(
        description="Members who are really in each sum (by the design if not opened)."
    )
    graded: GradedRow | None = None
    power: tuple[PowerRow, ...] = Field(
        (), description="What could have been missed; empty where nothing was compared, and for one bit a group."
    )
    coefficients: tuple[tuple[int, ...], ...] = Field(
        (),
        description="By which whole number each member of `groups` multiplied its update; empty where all are 1.",
    )
    opened_for: str = Field(
        "", description="With tests on suspicion: why all sums of this round were opened; otherwise empty."
    )


class ReadmissionRow(_Row):
    """A client that a test has left out, and that takes part again."""

    client: str
    round: int = Field(description="After it the client is back.")
    named_in: int = Field(description="The round of the test that has left it out.")
    cleared_in: tuple[int, ...] = Field(description="The rounds of the tests that would have named it, and did not.")


class RunResult(_Row):
    """A whole run.

    Examples:
        >>> from fedgt.experiment import make_spec, run
        >>> result = run(make_spec({"privacy": 4, "federation": {"rounds": 1}, "attack": {"malicious": 0}}))
        >>> len(result.clients), result.privacy.promised
        (15, 4)
    """

    schema_version: int = SCHEMA_VERSION
    version: str = Field(description="Of fedgt.")
    spec_hash: str = Field(
        description="SHA-256 of the canonical resolved specification, or of the settings of a real run."
    )
    seed: int
    method: str
    status: RunStatus = Field(description="`stopped` by policy, `failed` by an error; what was opened is on record.")
    reason: str = Field(description="Why the run ended early; empty when it finished.")
    clients: tuple[ClientRow, ...]
    rounds: tuple[RoundRow, ...]
    rounds_planned: int | None = Field(None, description="How many were to be held.")
    measured_on: Literal["test set", "validation set"] = Field(
        "test set", description="What accuracies are of: a simulation has a test set, a real server its validation set."
    )
    aggregates: tuple[AggregateRow, ...]
    privacy: PrivacyRow
    test: TestRow | None = Field(description="The last test round.")
    tests: tuple[TestRow, ...] = Field((), description="All test rounds.")
    readmissions: tuple[ReadmissionRow, ...] = Field(
        (), description="Who was left out by a test and came back, as `screen.readmit_after` says."
    )
    warnings: tuple[str, ...]
    cpu_seconds: float = Field(description="Of the whole run, clients included.")

    @property
    def missed(self) -> int:
        """Malicious clients that were not excluded (simulation)."""
        return sum(1 for c in self.clients if c.truth == "malicious" and not c.excluded)

    @property
    def falsely_excluded(self) -> int:
        """Benign clients that were excluded (simulation)."""
        return sum(1 for c in self.clients if c.truth == "benign" and c.excluded)


def json_number(value: float) -> JsonNumber:
    """A float as JSON allows it: "inf", "-inf", null for NaN."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(value)


def result_schema() -> dict[str, Any]:
    """The JSON schema of `result.json`.

    Examples:
        >>> from fedgt.record import result_schema
        >>> "rounds" in result_schema()["properties"]
        True
    """
    return RunResult.model_json_schema()


def write_result(result: RunResult, folder: Path) -> None:
    """Write `rounds.csv` and `result.json` into the folder, the result last and at once: where it is, the run has ended.

    Raises:
        SpecError: If one of them cannot be written.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run
        >>> from fedgt.record import write_result
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_result(run(make_spec({"privacy": 4, "federation": {"rounds": 1}})), Path(folder))
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['result.json', 'rounds.csv']
    """
    write_rounds(result.rounds, folder)
    text = json.dumps(result.model_dump(mode="json"), indent=1, allow_nan=False)
    write_durably(folder / "result.json", (text + "\n").encode())


def write_rounds(rounds: Sequence[RoundRow], folder: Path) -> None:
    """Write `rounds.csv`; see `write_result`."""
    names = {
        "top1_accuracy": "top1_accuracy_percent",
        "balanced_accuracy": "balanced_accuracy_percent",
        "attack_accuracy": "attack_accuracy_percent",
    }
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow([names.get(name, name) for name in RoundRow.model_fields])
    for row in rounds:
        writer.writerow(
            [
                f"{100 * value:.4f}" if name in names and value is not None else value
                for name, value in row.model_dump().items()
            ]
        )
    write_durably(folder / "rounds.csv", table.getvalue().encode(), sync=False)
