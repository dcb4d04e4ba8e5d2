"""A step of a run as rows of its result: what was decided, opened and measured, in plain values."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedgt.evidence import GradedDecoding, GradedEvidence, MarginEvidence
from fedgt.federation.participants import Federation
from fedgt.federation.round import ScreeningRound
from fedgt.federation.verdicts import Verdict
from fedgt.planning import smallest_named_shift
from fedgt.record.result import (
    ClientRow,
    GradedRow,
    LabelRow,
    PowerRow,
    PrivacyRow,
    SetRow,
    TestRow,
    Truth,
    json_number,
)
from fedgt.screen import ScreenResult


def client_rows(
    clients: Sequence[str],
    verdicts: Mapping[str, Verdict],
    groups: Sequence[Collection[str]],
    *,
    excluded: Collection[str],
    truth: Mapping[str, Truth],
) -> tuple[ClientRow, ...]:
    """The decision about each client.

    Args:
        clients: In the order of the rows.
        verdicts: By the tests.
        groups: Members of each group of the last test; who was left out by an earlier one sits in none.
        excluded: Who is left out from the beginning.
        truth: Known in simulations only, else empty.
    """
    return tuple(
        _client_row(
            client,
            verdicts.get(client),
            tuple(number for number, members in enumerate(groups) if client in members),
            client in excluded,
            truth.get(client),
        )
        for client in clients
    )


def _client_row(
    client: str, verdict: Verdict | None, seats: tuple[int, ...], excluded: bool, truth: Truth | None
) -> ClientRow:
    known = verdict or Verdict(
        client=client,
        verdict="untested",
        excluded=excluded,
        reason="left out from the beginning" if excluded else "no group test was made",
        posterior=np.nan,
        log_odds=np.nan,
        groups=(),
    )
    return ClientRow(
        id=client,
        excluded=known.excluded,
        verdict=known.verdict,
        reason=known.reason,
        posterior=json_number(known.posterior),
        log_odds=json_number(known.log_odds),
        groups=() if verdict is None else seats,
        decided_in=known.round or None,
        truth=truth,
    )


def privacy_row(federation: Federation, assumption: str) -> PrivacyRow:
    """What can be claimed about everything that was opened until now."""
    account = federation.ledger.account()
    colluders = federation.sums.colluders
    later = account.share_cautious
    beyond = {
        "colluders": colluders,
        "honest": None if account.strict is None else max(account.strict - colluders, 0),
        "share_cautious_largest": None if later is None else later.largest,
        "share_cautious_mean": None if later is None else later.mean,
        "weights": {client: float(weight) for client, weight in sorted(federation.weights.items())},
        "assumption": assumption,
    }
    return PrivacyRow.model_validate(account, from_attributes=True).model_copy(update=beyond)


def test_row(screened: ScreeningRound, number: int, malicious: Collection[str] | None) -> TestRow:
    """A test round; `malicious` is known in simulations only."""
    grouping = screened.grouping
    groups = tuple(grouping.members(i) for i in range(grouping.design.groups))
    decoding, screen = screened.decoding, screened.screen
    row: dict[str, Any]
    if isinstance(decoding, GradedDecoding):
        row = {"kind": "graded", "outcomes": "", "strategy": "minimum-cost", "utilities": (), "clusters": ()}
        row |= {"estimated_malicious": int(decoding.flagged.sum()), "graded": _graded_row(screened, decoding)}
    else:
        row = {"kind": "binary", "strategy": decoding.strategy, "estimated_malicious": decoding.estimated_malicious}
    if isinstance(screen, ScreenResult):
        row |= {"outcomes": str(screen.outcomes), "clusters": tuple(screen.clusters.tolist())}
        row |= {"utilities": tuple(json_number(v) for v in screen.utilities.tolist())}
    return TestRow(
        round=number,
        truth=None if malicious is None else _contaminated(screened, len(groups), set(malicious)),
        status=decoding.status,
        reason=screened.exclusion.reason,
        screen_status=screen.status,
        screen_reason=screen.reason,
        projection=tuple(json_number(v) for v in screen.projection.tolist()),
        design=grouping.design.name,
        groups=groups,
        power=_power(screened),
        opened_for=screened.opened_for,
        coefficients=()
        if grouping.coefficients is None
        else tuple(tuple(grouping.factors(i)[client] for client in group) for i, group in enumerate(groups)),
        **row,
    )


def _power(screened: ScreeningRound) -> tuple[PowerRow, ...]:
    """What one attacker, and a few together, must do to be named by the sums of this round alone."""
    evidence, decoding = screened.measured.evidence, screened.decoding
    if not isinstance(decoding, GradedDecoding) or evidence is None:
        return ()
    if isinstance(evidence, MarginEvidence):
        shifts, directions = evidence.shifts, None
    else:
        line = evidence.hypotheses[0].shift
        shifts, directions = line.shifts, line.effective_features
    largest = len(decoding.count) - 1
    return tuple(
        PowerRow(
            attackers=attackers,
            shift=smallest_named_shift(shifts, directions=directions, attackers=attackers, largest=largest),
        )
        for attackers in (1, 3)
        if attackers <= largest
    )


def _contaminated(screened: ScreeningRound, groups: int, malicious: set[str]) -> str:
    """One character a group: whether a malicious client is really in its sum."""
    members = {
        int(record.purpose.rpartition("-")[2]): set(record.members)
        for record in screened.result.records
        if record.purpose.startswith("test-group-")
    } or {0: set(screened.result.records[0].members)}
    return "".join(str(int(bool(malicious & members[i]))) for i in range(groups))


def _graded_row(screened: ScreeningRound, decoding: GradedDecoding) -> GradedRow:
    clients = screened.grouping.clients
    screen = screened.screen
    evidence = screened.measured.evidence
    label = screened.measured.label
    return GradedRow(
        against_nobody=json_number(decoding.against_nobody),
        count_posterior=tuple(json_number(v) for v in decoding.count.tolist()),
        best_sets=tuple(
            SetRow(clients=tuple(clients[j] for j in one.clients), probability=json_number(one.probability))
            for one in decoding.best
        ),
        attacks=decoding.attacks,
        signal=json_number(evidence.strongest.shift.signal) if isinstance(evidence, GradedEvidence) else None,
        effective_features=json_number(evidence.strongest.shift.effective_features)
        if isinstance(evidence, GradedEvidence)
        else None,
        loss=() if isinstance(screen, ScreenResult) else tuple(json_number(v) for v in screen.loss.tolist()),
        label=None
        if label is None
        else LabelRow(kind=label.kind, labels=label.labels, rises=label.rises, p_values=label.p_values),
    )
