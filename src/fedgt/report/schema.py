"""The content of `report.json`, typed: from here comes docs/report.schema.json, and a test holds real reports against it.

`fedgt.report.audit` builds plain dicts. Fields are only ever added. Infinite numbers are the strings "inf" and "-inf",
unknown ones are null. Fields marked *simulation only* are absent unless `simulation` is true.
"""

from typing import Any, Literal

from pydantic import Field

from fedgt.record.result import JsonNumber, PowerRow, PrivacyRow, RoundRow, SetRow, Truth
from fedgt.record.verdict_words import VerdictName
from fedgt.report.drawing_schema import FiguresPart, Part

Outcome = Literal["negative", "positive", "erased"]


class DecidedPart(Part):
    """The clients about whom one word was said."""

    word: VerdictName
    left_out: bool
    clients: list[str]
    meaning: str


class FirstPage(Part):
    """The first page, in plain words: sentences as they stand there."""

    headline: str
    lead: str
    decided: list[DecidedPart] = Field(description="The most suspicious first.")
    sure: list[str]
    missed: list[str] = Field(description="What the tests could have missed.")
    learned: list[str] = Field(description="What the server learned, the worst of everything that was opened.")
    next: list[str] = Field(description="What to do now.")


class RunPart(Part):
    """Which run this is, and how to know it again."""

    version: str = Field(description="Of the fedgt that made the run.")
    report_version: str = Field(description="Of the fedgt that wrote this report.")
    method: str
    status: Literal["finished", "stopped", "failed"]
    reason: str = Field(description="Why the run ended early; empty when it finished.")
    seed: int
    spec_hash: str = Field(
        description="SHA-256 of the canonical resolved specification, or of the settings of a real run, as recorded."
    )
    spec_matches: bool | None = Field(
        description="Whether the spec.toml or settings.toml in the folder has it; null without one."
    )
    plan_hash: str | None = Field(description="SHA-256 of plan.json; null without one.")
    result_hash: str = Field(description="SHA-256 of result.json.")
    rounds_done: int
    rounds_planned: int | None = Field(description="Null where it is not known.")
    measured_on: str = Field(description="What accuracies are of: the test set of a simulation, or the validation set.")
    data: str | None = Field(description="Name of the data set; null without a spec.toml.")
    cpu_seconds: float


class SummaryPart(Part):
    """The run in a few numbers."""

    clients: int
    excluded: list[str]
    excluded_count: int
    undecided_count: int
    uncertain_count: int = Field(description="Left out although the tests cannot tell.")
    suspicious_count: int
    untested_count: int
    opened: int = Field(description="Secure sums that were opened.")
    asked: int = Field(description="Secure sums that were asked for.")
    top1_accuracy: float | None = Field(description="After the last round, from 0 to 1; null without a round.")
    warnings: int
    really_malicious: int | None = Field(None, description="Simulation only.")
    found: int | None = Field(None, description="How many of them are left out. Simulation only.")
    wronged: int | None = Field(None, description="Benign clients that are left out. Simulation only.")


class GroupOutcome(Part):
    """A group of a client, and what it showed."""

    group: int
    outcome: Outcome | None = Field(description="Null for graded evidence, which has no outcome of one group.")


class Contribution(Part):
    """What one group says about a client."""

    group: int
    outcome: Outcome
    change: JsonNumber = Field(description="Of the client's log-odds, in nats; negative speaks against it.")


class VerdictPart(Part):
    """The decision about one client. Listed with the most suspicious first."""

    client: str
    verdict: VerdictName
    excluded: bool
    reason: str
    posterior: JsonNumber = Field(description="P(malicious | evidence); null when nothing was tested.")
    log_odds: JsonNumber = Field(description="log P(benign | t) - log P(malicious | t), in nats.")
    decided_in: int | None = Field(description="The round of the verdict; null where nobody has said.")
    groups: list[GroupOutcome]
    against: list[Contribution] | None = Field(description="The strongest first; null where it was not computed.")
    for_: list[Contribution] | None = Field(alias="for", description="As `against`, for the client.")
    truth: Truth | None = Field(None, description="Simulation only.")


class GroupPart(Part):
    """One group of the test."""

    group: int
    outcome: Outcome | None
    members: list[str]
    size: int
    really: list[str] | None = Field(description="Whose models are in the opened sum; null if it was not opened.")
    utility: JsonNumber
    projection: JsonNumber
    cluster: int | None
    loss: JsonNumber = Field(description="Balanced validation loss of the group mean, in nats; graded evidence.")
    coefficients: list[int] | None = Field(
        description="By which whole number each of `members` multiplied its update; null where all are 1."
    )
    truth: Literal["contaminated", "clean"] | None = Field(None, description="Simulation only.")


class NobodyPart(Part):
    """Could it have been nobody? For one bit a group."""

    posterior: float = Field(description="P(nobody malicious | outcomes).")
    evidence_against: JsonNumber = Field(description="log P(t | somebody) - log P(t | nobody), in nats.")


class CountPart(Part):
    """P(exactly so many malicious clients | evidence)."""

    malicious: int
    probability: JsonNumber


class ClassPart(Part):
    """A class that gets worse through the suspects."""

    label: int
    rise: float = Field(description="Loss of malicious clients alone less that of the others, in nats.")
    p_value: float = Field(description="Corrected for the number of classes (Holm).")


class LabelPart(Part):
    """What the attack seems to aim at."""

    kind: Literal["targeted", "untargeted", "none"]
    classes: list[ClassPart]


class GradedPart(Part):
    """What graded evidence says as a whole."""

    against_nobody: JsonNumber = Field(description="Log-odds of some attack against none, in nats, prior included.")
    attacks: int
    signal: JsonNumber
    effective_features: JsonNumber
    counts: list[CountPart]
    label: LabelPart | None


class TestPart(Part):
    """The last group test."""

    __test__ = False  # not a pytest class

    round: int
    design: str
    strategy: str
    status: str
    reason: str
    estimated_malicious: int | None
    screen_status: str
    screen_reason: str
    outcomes: str = Field(description="One character a group: 0, 1 or ?; empty for graded evidence.")
    binary: bool = Field(description="Whether the decision rests on one bit a group.")
    groups: list[GroupPart]
    clients: list[str] = Field(description="Columns of `matrix`.")
    matrix: list[list[bool]] = Field(description="Groups x clients: who sits where.")
    nobody: NobodyPart | None = Field(description="One bit a group, where it was computed.")
    graded: GradedPart | None
    sets: list[SetRow] = Field(description="The most probable explanations.")


class TestLine(Part):
    """One line for each test round."""

    __test__ = False

    round: int
    design: str
    status: str
    outcomes: str
    reason: str
    opened_for: str = Field(description="With tests on suspicion: why all sums were opened; otherwise empty.")
    groups: int
    power: list[PowerRow] = Field(description="Empty where it is not known.")


class RecheckPart(Part):
    """Would the same record be decided the same way again?"""

    status: Literal["same", "different", "not-made"]
    reason: str
    largest_difference: float | None = Field(description="Of a posterior.")


class RoundPart(RoundRow):
    """One communication round, as recorded."""

    attack_accuracy: float | None = Field(None, description="Simulation only.")


class CombinationPart(Part):
    """A factor of a combination of opened sums."""

    purpose: str
    factor: str = Field(description="An exact fraction.")


class ModelsPart(Part):
    """The sums about one global model, whose local models may be the same."""

    round: int = Field(description="The first round in which one was opened.")
    sums: int
    r: int | None = Field(
        description="Proved minimum support; null where weights are unknown or the search was too long."
    )
    upper: int | None = Field(description="The support of the combination that was found.")
    exposed: list[str] = Field(description="The clients in the most revealing combinations.")
    complete: bool = Field(description="Whether `exposed` names all of them.")
    combination: list[CombinationPart]
    share_mean: float | None = Field(
        description="Mean of the clients' disclosed shares; null where weights are unknown."
    )
    share_largest: float | None = Field(description="The largest of them.")


class SharePart(Part):
    """How much of what is particular to a client the sums explain."""

    client: str
    share: float


class ExposedPart(Part):
    """The most revealing combination of the whole run."""

    round: int
    r: int
    upper: int
    clients: list[str]
    complete: bool
    combination: list[CombinationPart]


class AccountCheck(Part):
    """Whether the recorded sums agree with the recorded privacy account."""

    status: Literal["same", "different", "not-made"]
    reason: str


class DroppedPart(Part):
    """A client that dropped out of a sum."""

    client: str
    what: str


class AggregatePart(Part):
    """One sum that the server asked for."""

    round: int
    purpose: str
    status: Literal["open", "faulty", "erased", "refused"]
    reason: str
    size: int
    members: list[str]
    dropped: list[DroppedPart]


class PrivacyPart(PrivacyRow):
    """What the server learned."""

    shares: list[SharePart] = Field(  # type: ignore[assignment]
        description="The largest over the sets of local models, if clients differ equally and independently."
    )
    share_largest: float | None = Field(description="The largest of `shares`.")
    share_client: str | None = Field(description="Whose it is.")
    sets: list[ModelsPart]
    most_exposed: ExposedPart | None
    check: AccountCheck
    aggregates: list[AggregatePart]


class DropoutPart(Part):
    """A client that fell silent in a round, and in which sums."""

    round: int
    client: str
    what: str
    sums: list[str]


class AbsentPart(Part):
    """Clients that are in no sum of a round."""

    round: int
    clients: list[str]


class NotOpenedPart(Part):
    """A sum that was asked for and not opened."""

    round: int
    purpose: str
    status: Literal["faulty", "erased", "refused"]
    reason: str


class IncidentsPart(Part):
    """Dropouts, refusals and warnings."""

    dropouts: list[DropoutPart]
    absent: list[AbsentPart]
    not_opened: list[NotOpenedPart]
    warnings: list[str]


class TrafficPart(Part):
    """Traffic of the rounds with one purpose."""

    purpose: str
    rounds: int
    secure_sums: int
    bytes_up: int
    bytes_down: int


class CommunicationPart(Part):
    """Real messages of all stages, in bytes."""

    secure_sums: int
    bytes_up: int = Field(description="From the clients.")
    bytes_down: int = Field(description="To the clients.")
    by_purpose: list[TrafficPart]


class SpecificationPart(Part):
    """What was run, and how to run it again."""

    toml: str = Field(
        description="The resolved specification, without `attack` and `faults` unless `simulation`; or real settings."
    )
    commands: list[str] = Field(description="That repeat the run; none of a real one.")


class Report(Part):
    """The audit report of one run."""

    schema_version: Literal[1]
    first_page: FirstPage
    simulation: bool = Field(description="Whether the record says who is malicious, which no real server knows.")
    run: RunPart
    summary: SummaryPart
    verdicts: list[VerdictPart]
    test: TestPart | None
    tests: list[TestLine] = Field(description="All test rounds.")
    recheck: RecheckPart
    rounds: list[RoundPart]
    privacy: PrivacyPart
    incidents: IncidentsPart
    communication: CommunicationPart
    limits: list[str] = Field(description="What this run cannot show.")
    specification: SpecificationPart
    figures: FiguresPart


def report_schema() -> dict[str, Any]:
    """The JSON schema of `report.json`.

    Examples:
        >>> from fedgt.report import report_schema
        >>> "limits" in report_schema()["properties"]
        True
    """
    return Report.model_json_schema(by_alias=True)
