"""Whether those who stand out are accused: is there harm, and does a second opinion speak for an attack?

Harm shows in a loss that rises, or in margins that confirm the suspects. Where clients own different classes margins have to
confirm them anyhow, and where weights are compared all the same, because some suspects go far, a loss has to rise, too
(decision 0053). Nobody has to if one round shows that clients own the classes evenly: they do so in every round, and noise
only makes it look otherwise.

Each attack is judged by itself, with everybody else who is suspected set aside: losses and margins that another attack moves
say nothing about this one, and raise the noise that it is measured by.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from typing import Literal

import numpy as np

from fedgt.evidence.attacks import Attack
from fedgt.evidence.by_margins.honest_account import HonestAccount
from fedgt.evidence.decoding import GradedDecoding
from fedgt.types import BoolArray, FloatArray, IntArray, LayeredEvidence

MORE = "more is going on than these sets explain"

HARM = 0.15
"""P-value of the losses above which nobody is accused whom the margins do not confirm: honest clients of one camera or one
hospital differ along a line too, and malice shows in what gets worse. A mild demand, because weak attackers are not to be
let go: where the line names attackers of IID clients it is below 0.15 in nearly all runs, where it named honest hospitals it
was 0.4 and more."""

CONFIRMED = 2.5
"""Nats by which the validation margins must speak for suspects that the weights have found. Where clients differ by nature,
whoever stands out in weights is an honest client of other classes; asked about such sets, margins hardly ever say more,
about attackers of IID clients hardly ever less."""

_MOST_ASKED = 12
"""Suspects of whom every subset is asked about; of more, only all together."""


def judged(found: GradedDecoding, attacks: Sequence[Attack], evidence: Sequence[LayeredEvidence]) -> GradedDecoding:
    """The same, but nobody is accused of harm that no loss shows in any round, or that a second opinion does not see."""
    if not found.flagged.any() or not evidence or not attacks:
        return found
    belongs = np.argmax([one.posterior for one in attacks], axis=0)
    nobody = np.zeros(len(found.flagged), dtype=np.bool_)
    accused, harmless, unconfirmed, reasons = nobody.copy(), nobody.copy(), nobody.copy(), []
    second = np.full(len(nobody), -np.inf)
    excusable = _excusable(found.flagged, belongs, evidence, len(attacks))
    for number, attack in enumerate(attacks):
        suspects = found.flagged & (belongs == number)
        if not suspects.any():
            continue
        others = found.flagged & ~suspects
        if excusable[number]:
            unconfirmed |= suspects
            second[suspects] = 0.0
            reasons.append(_could_be_honest(int(suspects.sum())))
            continue
        posterior = found.posterior if len(attacks) == 1 else attack.posterior
        p_value = min(1.0, len(evidence) * min(one.harm(posterior, others) for one in evidence))
        support, confirmed = nothing = (float("nan"), suspects)
        alone = any(one.needs_no_opinion(suspects, others) for one in evidence)
        if p_value > HARM or not alone:
            support, confirmed = _opinion(suspects, others, evidence)
        both = not alone and any(one.evenly_owned for one in evidence)
        if p_value > HARM and (both or not support >= CONFIRMED):
            harmless |= suspects
            # Where classes are owned evenly, what no loss shows may be a trigger that no sample has: nothing acquits it.
            acquits = max(-support, 0.0) if both else -support
            second[suspects] = -np.inf if alone or np.isnan(support) else acquits
            reasons.append(_harmless(int(suspects.sum()), p_value, both=both))
            continue
        # Weights know best who it is, where classes are owned evenly.
        support, confirmed = nothing if alone else (support, confirmed)
        accused |= confirmed
        unconfirmed |= suspects & ~confirmed
        # Where others of the attack are confirmed, this one is less likely malicious than not.
        second[suspects & ~confirmed] = -support if support < CONFIRMED else 0.0
        if support < CONFIRMED:
            reasons.append(_unconfirmed(int(suspects.sum()), support))
    said = replace(found, flagged=accused, harmless=harmless, unconfirmed=unconfirmed, second=second)
    if accused.any():
        return replace(said, reason="; ".join([found.reason, *reasons]))
    status: Literal["harmless", "unconfirmed"] = "harmless" if harmless.any() else "unconfirmed"
    undecided = found.undecided & found.more
    return replace(
        said, undecided=undecided, status=status, reason="; ".join([*reasons, *([MORE] if found.more else [])])
    )


def _excusable(flagged: BoolArray, belongs: IntArray, evidence: Sequence[LayeredEvidence], attacks: int) -> list[bool]:
    """Of each attack: whether honest clients could have made it; of none where one at most could be, and several are."""
    excusable = []
    for number in range(attacks):
        suspects = flagged & (belongs == number)
        others = flagged & ~suspects
        said = [one.could_be_sent(suspects, others) for one in evidence] if suspects.any() else []
        known = [one for one in said if one is not None]
        excusable.append(bool(known) and all(known))
    if sum(excusable) > 1 and any(one.one_owner_at_most(flagged) for one in evidence):
        return [False] * attacks
    return excusable


def excused(found: GradedDecoding, accounts: Sequence[HonestAccount]) -> GradedDecoding:
    """The same, but suspects are not accused if honest clients could have sent the sums of every test.

    Args:
        found: What the margins say.
        accounts: Of the tests that have one.

    Examples:
        >>> from fedgt.evidence import decode_graded
        >>> from fedgt.evidence.judge import excused
        >>> nothing = decode_graded([], clients=15, largest=7)
        >>> excused(nothing, []) is nothing
        True
    """
    if not found.flagged.any() or not accounts or not all(one.explains(found.flagged) for one in accounts):
        return found
    left = found.undecided & ~found.flagged
    return replace(
        found,
        flagged=np.zeros_like(found.flagged),
        unconfirmed=found.unconfirmed | found.flagged,
        second=np.where(found.flagged, 0.0, -np.inf if found.second is None else found.second),
        undecided=left,
        status="undecided" if left.any() else "unconfirmed",
        reason=f"{found.reason}; {int(found.flagged.sum())} clients differ from the others as attackers do, but honest "
        "clients that own other classes explain the sums nearly as well, so that they are not accused",
    )


def _could_be_honest(many: int) -> str:
    return (
        f"{many} clients differ from the others as attackers do, but honest clients that own other classes send the like, "
        "so that they are not accused"
    )


def _harmless(many: int, p_value: float, *, both: bool) -> str:
    shown = "" if both else ", nor do margins confirm that they mislabel"
    return (
        f"{many} clients differ from the others along one line, but no validation loss rises with them significantly (p = "
        f"{p_value:.2g}, at most {HARM:g} is needed){shown}: honest clients may differ like that, they are not accused"
    )


def _unconfirmed(many: int, support: float) -> str:
    return (
        f"{many} clients differ from the others along one line, but the margins of the validation set do not confirm that "
        f"they mislabel ({support:.2g} nats, {CONFIRMED:g} are needed): clients that own other classes differ like that, "
        "they are not accused. If clients differ by nature, test with screen.features = 'margins'"
    )


def _opinion(suspects: BoolArray, others: BoolArray, evidence: Sequence[LayeredEvidence]) -> tuple[float, BoolArray]:
    """By how many nats the best of the suspects are confirmed, and who of them is more likely malicious than not by that.

    The mean of the rounds counts and not the sum: what honest clients differ by comes again in every round. NaN and all of
    them where no round has an opinion.
    """
    members = np.flatnonzero(suspects)
    many = len(members)
    subsets = np.ones((1, many), dtype=np.bool_)
    if many <= _MOST_ASKED:
        subsets = (np.arange(1, 2**many)[:, None] >> np.arange(many)) % 2 == 1
    sets = np.zeros((len(subsets), len(suspects)), dtype=np.bool_)
    sets[:, members] = subsets
    opinions = np.stack([one.confirmed(sets, others) for one in evidence])
    heard = ~np.isnan(opinions)
    if not heard.any():
        return float("nan"), suspects
    values = np.where(heard, opinions, 0.0).sum(axis=0) / np.maximum(1, heard.sum(axis=0))
    accused = np.zeros(len(suspects), dtype=np.bool_)
    if values.max() >= CONFIRMED:
        accused[members] = _likely(subsets, values)
    return float(values.max()), accused


def _likely(sets: BoolArray, values: FloatArray) -> BoolArray:
    """bool[clients]: in over half of the sets by likelihood, every size as likely as another; else in the best set."""
    sizes = sets.sum(axis=1)
    worth = values - np.log([float(comb(int(sizes.max()), size)) for size in sizes])
    chance = np.exp(worth - worth.max())
    often: BoolArray = sets.T @ chance / chance.sum() > 1 / 2
    best: BoolArray = sets[values.argmax()]
    return often if often.any() else best
