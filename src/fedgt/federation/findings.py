"""What a test says about each client, whatever it compared: one form for the paper's outcomes and for graded evidence.

The round and its decision read a `Finding` and never ask where it comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedgt.decode import UNDECIDABLE, Decoding
from fedgt.defaults import UNDECIDED
from fedgt.evidence import GradedDecoding
from fedgt.grouping import Grouping
from fedgt.record.verdict_words import VerdictName
from fedgt.types import ERASED, NEGATIVE, POSITIVE, BoolArray, FloatArray, IntArray, Outcomes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finding:
    """What a test says about each client, in column order.

    Attributes:
        reason: What was found overall, in plain words.
        undecidable: Whether nobody can be cleared or named.
        accuses: Whether there are accusations all the same, which a policy may follow.
        heard: int64[clients]: in how many sums with evidence a client is, over all tests.
        posterior: float64[clients]: P(malicious | tests).
        log_odds: float64[clients]: log P(benign | tests) - log P(malicious | tests), in nats.
        flagged: bool[clients]: who is more likely malicious, at the given costs.
        suspicious: bool[clients]: who stands out as attackers do, without shown harm.
        undecided: bool[clients]: whom a further test might decide.
        said: The verdict and the reason about each client, if the policies leave it at that.
        unclear: What is said about each client where nobody is singled out.

    Examples:
        >>> import numpy as np
        >>> from fedgt import Grouping, named_design
        >>> from fedgt.evidence import decode_graded
        >>> from fedgt.federation import from_posterior
        >>> design = named_design("graded-15x10-b")
        >>> grouping = Grouping(design=design, clients=tuple(f"site-{j:02d}" for j in range(15)))
        >>> finding = from_posterior(grouping, np.zeros(10, dtype=bool), decode_graded([], clients=15, largest=7))
        >>> finding.heard.tolist()[:3], finding.accuses  # in how many sums of the evidence the first three are
        ([0, 0, 0], False)
    """

    reason: str
    undecidable: bool
    accuses: bool
    heard: IntArray
    posterior: FloatArray
    log_odds: FloatArray
    flagged: BoolArray
    suspicious: BoolArray
    undecided: BoolArray
    said: tuple[tuple[VerdictName, str], ...]
    unclear: tuple[str, ...]


def from_outcomes(grouping: Grouping, outcomes: Outcomes, decoding: Decoding) -> Finding:
    """What one bit a group says.

    Args:
        grouping: Who sat where, with the members that the sums were really over.
        outcomes: What the tests said.
        decoding: Whom the decoder accuses.

    Examples:
        >>> from fedgt import ErrorRates, Grouping, Outcomes, named_design
        >>> from fedgt.decode import decode
        >>> from fedgt.federation import from_outcomes
        >>> design, outcomes = named_design("bch-15x8"), Outcomes.parse("11010000")
        >>> grouping = Grouping(design=design, clients=tuple(f"site-{j:02d}" for j in range(15)))
        >>> finding = from_outcomes(grouping, outcomes, decode(design, outcomes, rates=ErrorRates.symmetric(0.05)))
        >>> finding.accuses, finding.undecidable
        (True, False)
    """
    columns = range(grouping.design.clients)
    values = [outcomes.values[list(grouping.design.groups_of(j))].tolist() for j in columns]
    tests = [(one.count(POSITIVE), one.count(NEGATIVE), one.count(ERASED)) for one in values]
    counts = [f"{p} of its {p + n} tested groups positive" + (f", {e} not opened" if e else "") for p, n, e in tests]
    return Finding(
        reason=decoding.reason,
        undecidable=decoding.status in UNDECIDABLE,
        accuses=True,
        heard=np.array([p + n for p, n, _ in tests], dtype=np.int64),
        posterior=decoding.posterior,
        log_odds=decoding.log_odds,
        flagged=decoding.flagged,
        suspicious=np.zeros(len(values), dtype=np.bool_),
        undecided=np.zeros(len(values), dtype=np.bool_),
        said=tuple(
            (_word(bool(decoding.flagged[j]), float(decoding.posterior[j])), counts[j] + _tie(grouping, decoding, j))
            for j in columns
        ),
        unclear=tuple(f"{count}, and {decoding.reason}" for count in counts),
    )


def _word(accused: bool, posterior: float) -> VerdictName:
    """The verdict where nothing but the posterior tells how sure it is; as sure as graded evidence must be."""
    if accused:
        return "exclude" if posterior > 1 - UNDECIDED else "exclude (uncertain)"
    return "undecided" if posterior >= UNDECIDED else "keep"


def _tie(grouping: Grouping, decoding: Decoding, column: int) -> str:
    if column not in decoding.tied:
        return ""
    if decoding.flagged[column]:
        others = ", ".join(grouping.clients[j] for j in decoding.tied if j != column)
        return f"; as suspicious as {others}: the lower column was taken"
    others = ", ".join(grouping.clients[j] for j in decoding.tied if decoding.flagged[j])
    return f"; as suspicious as {others}, which had the lower column"


def from_posterior(
    grouping: Grouping, tested: BoolArray, decoding: GradedDecoding, before: Mapping[str, int] | None = None
) -> Finding:
    """What graded evidence says.

    Args:
        grouping: Who sat where, with the members that the sums were really over.
        tested: bool[groups]: which groups are in the evidence.
        decoding: The posterior.
        before: Client -> in how many sums of earlier test rounds it was, whose evidence is in the posterior too.

    Examples:
        >>> import numpy as np
        >>> from fedgt import Grouping, named_design
        >>> from fedgt.evidence import decode_graded
        >>> from fedgt.federation import from_posterior
        >>> design = named_design("graded-15x10-b")
        >>> grouping = Grouping(design=design, clients=tuple(f"site-{j:02d}" for j in range(15)))
        >>> nothing = decode_graded([], clients=15, largest=7)  # no sum could be compared
        >>> from_posterior(grouping, np.zeros(10, dtype=bool), nothing).undecidable
        True
    """
    earlier = [(before or {}).get(client, 0) for client in grouping.clients]
    heard: IntArray = (grouping.design.matrix[tested] > 0).sum(axis=0, dtype=np.int64) + np.array(earlier)
    return Finding(
        reason=decoding.reason,
        undecidable=decoding.status in ("unexplained", "no-evidence"),
        accuses=False,
        heard=heard,
        posterior=decoding.posterior if decoding.second is None else expit(-decoding.believed),
        log_odds=decoding.believed,
        flagged=decoding.flagged,
        suspicious=decoding.suspicious,
        undecided=decoding.undecided & ~decoding.suspicious,
        said=tuple(_graded(grouping, decoding, j, int(heard[j])) for j in range(grouping.design.clients)),
        unclear=(decoding.reason,) * grouping.design.clients,
    )


def _graded(grouping: Grouping, decoding: GradedDecoding, column: int, heard: int) -> tuple[VerdictName, str]:
    posterior = float(decoding.posterior[column])
    if decoding.harmless[column]:
        return "suspicious", "it differs from the others as an attacker does, but no validation loss rises with it"
    if decoding.unconfirmed[column]:
        return "suspicious", (
            "it differs from the others as an attacker does, and as a client that owns other classes does: the margins do "
            "not confirm that it mislabels"
        )
    if decoding.undecided[column]:
        rivals = _rivals(grouping, decoding, column)
        return "undecided", f"malicious with probability {posterior:.2f}" + (
            f"; {rivals} would explain the same sums" if rivals else ""
        )
    if posterior > 1 / 2 and not decoding.flagged[column]:
        return "undecided", "it would be malicious if anybody were, but it is not sure enough that anybody is; kept"
    chance = _percent(posterior)
    if decoding.flagged[column]:
        return "exclude", (
            f"the {heard} sums it is in differ from the others as they would if it pushed them (malicious with probability "
            f"{chance})"
        )
    if decoding.status in ("harmless", "unconfirmed") and posterior >= UNDECIDED:
        return "undecided", f"it may be one of those who differ (malicious with probability {chance}); kept"
    return "keep", f"nothing in the {heard} sums it is in points to it (malicious with probability {chance})"


def _percent(probability: float) -> str:
    if probability > 0.9999:
        return "above 99.99 %"
    return "below 0.01 %" if probability < 0.0001 else f"{100 * probability:.2f} %"


def _rivals(grouping: Grouping, decoding: GradedDecoding, column: int) -> str:
    """Clients that are malicious in the most probable set without this client, and not in the most probable one with it."""
    with_it = next((one.clients for one in decoding.best if column in one.clients), None)
    without = next((one.clients for one in decoding.best if column not in one.clients), None)
    if with_it is None or without is None:
        return ""
    others = [j for j in without if j not in with_it]
    return " and ".join(grouping.clients[j] for j in others) if others else "its absence"
