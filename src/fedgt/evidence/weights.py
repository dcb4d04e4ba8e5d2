"""Graded evidence of one test round: where in the classification layer groups differ, along which line, with what harm.

An attack on a label moves the rows of two classes against each other, an untargeted one moves all rows. Nobody says which;
each is a hypothesis with a prior (half on all rows, half spread over the pairs of classes). Rows that a hypothesis does not
touch are noise under it, so they cancel: its evidence is the likelihood ratio of its own rows against noise. Two attacks
at once show in two pairs of rows, or as two lines in the same rows; `beside`, `lines` and `given` are for these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedgt.evidence.apart import ApartEvidence
from fedgt.evidence.by_margins.honest_account import HonestAccount
from fedgt.evidence.by_margins.hypotheses import FEWEST_CLASSES
from fedgt.evidence.contrast import Moved, cancelling, moved
from fedgt.evidence.harm import Damage
from fedgt.evidence.line import ShiftEvidence, log_sum, shift_evidence
from fedgt.evidence.line_likelihood import FewFeatures
from fedgt.evidence.push import Push
from fedgt.evidence.relaxed import relaxed_sets
from fedgt.types import BoolArray, FloatArray, frozen

HONEST_LINE = 0.5
"""Prior probability that honest clients differ along one direction more than along all others."""

_GROWN = 3.0
"""A line of honest clients that was not there before is a twentieth as likely as one that was, at least: they may change."""

_WORTH_WHILE = 12.0
"""Hypotheses this many nats below the best are left out."""

_EXPLAINS = 10.0
"""A set that falls this many nats short of a perfect fit still explains a line."""

_NEAR = 0.9
"""So does one whose line has this squared cosine with it: unequal attackers are more likely than a second attack so near."""

_MOST = 4
"""Hypotheses that are scored set by set; the others have a prior of a percent each and less evidence."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """One hypothesis: which rows of the classification layer an attack moves.

    Attributes:
        labels: The two classes whose rows move against each other; empty for all rows.
        log_prior: Of the hypothesis.
        gram: float64[contrasts, contrasts] of these features.
        features: How many they are.
        shift: The strongest line in them.
        few: What is known of the features, where contrasts outnumber those that vary independently.
        grown: By how many nats the groups have come to differ more in each of these rows than in a usual one, since rounds
            in which nobody was suspected; 0 where that is not known. A line of honest clients is as much less likely: what
            they differ by comes again in every round.
    """

    labels: tuple[int, ...]
    log_prior: float
    gram: FloatArray
    features: int
    shift: ShiftEvidence
    few: FewFeatures | None = None
    grown: float = 0.0

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "gram", frozen(self.gram, np.float64))

    def line(self, gram: FloatArray, shifts: FloatArray) -> ShiftEvidence | None:
        """The strongest line in other contrasts of the same features."""
        if self.few is not None:
            return self.few.line(gram, shifts)
        return shift_evidence(gram, shifts, features=self.features)

    @property
    def weight(self) -> float:
        """Log of prior times likelihood ratio of some line in these rows against noise."""
        return self.log_prior + self.shift.line - self.shift.nobody


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixedEvidence:
    """Several hypotheses about the rows, the most likely ones. Implements `SetEvidence`.

    Attributes:
        rows: The hypotheses, the strongest first.
        power: To which the likelihood is raised, as a whole: the part of several tests that is new (`repeated`). So equal
            tests say no more together than one, about nobody as about any set.
    """

    rows: tuple[Rows, ...]
    power: float = 1.0

    def some(self) -> float:
        """By how many nats there is a line at all, against noise: no set has more evidence."""
        return self.power * self._weight

    @property
    def _weight(self) -> float:
        return float(np.logaddexp.reduce([one.weight for one in self.rows]))

    def log_likelihood(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> FloatArray:
        """float64[B]: log-likelihood ratio of each set against noise; for the empty set, of honest clients against noise.

        A set that moves no contrast leaves the sums as honest clients do: it has the likelihood of the empty set.

        Args:
            sets: bool[B, clients].
            shift: How far they move the contrasts of the first hypothesis, if it is known.
        """
        members = np.asarray(sets, dtype=np.float64)
        known = moved(self.rows[0].shift.shifts, members) if shift is None else shift
        likelihood = self.explained(members, known) + self.some()
        likelihood[~known.able] = self.honest()
        return likelihood

    def explained(self, sets: BoolArray | FloatArray, shift: Moved | None = None) -> FloatArray:
        """float64[B]: log-likelihood of each set, in whichever rows, less that of a set that explains all lines perfectly.

        The empty set explains no line: -inf. So does a set that moves no contrast.

        Args:
            sets: bool[B, clients].
            shift: How far they move the contrasts of the first hypothesis, if it is known.
        """
        members = np.asarray(sets, dtype=np.float64)
        first = self.rows[0].shift.shifts
        known = moved(first, members) if shift is None else shift
        ratios = np.empty((len(self.rows), len(members)))
        for number, one in enumerate(self.rows):
            same = np.array_equal(one.shift.shifts, first)
            ratios[number] = one.weight + one.shift.explained(members, known if same else None)
        likelihood: FloatArray = ratios[0] if len(ratios) == 1 else log_sum(ratios)
        return self.power * (likelihood - self._weight)

    def honest(self) -> float:
        """Log-likelihood ratio of honest clients against noise: some of them have a line too, in any direction."""
        scattered = np.logaddexp.reduce([one.weight + min(one.shift.scattered(), 0.0) - one.grown for one in self.rows])
        return self.power * float(np.logaddexp(np.log(1.0 - HONEST_LINE), np.log(HONEST_LINE) + scattered))


def mixed(rows: list[Rows], power: float = 1.0) -> MixedEvidence | None:
    """The most likely hypotheses; None where there is none."""
    return MixedEvidence(rows=most_likely(rows), power=power) if rows else None


def most_likely(rows: Sequence[Rows]) -> tuple[Rows, ...]:
    """The hypotheses that are worth while, the most likely ones first."""
    ranked = sorted(rows, key=lambda one: -one.weight)
    return tuple(one for one in ranked[:_MOST] if one.weight > ranked[0].weight - _WORTH_WHILE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradedEvidence:
    """What one test round says about sets of malicious clients. Implements `LayeredEvidence`.

    Attributes:
        hypotheses: All of them, in a fixed order; the first is that of all rows.
        mixture: The most likely ones.
        damage: The losses.
        noise: float64[contrasts, clients]: whose noise is in which contrast, to see what comes again; see `Contrasts`.
        compared: float64[contrasts, features]: the contrasts themselves, if they are not of a layer; for `together`.
        tests: How many test rounds these are.
        power: To which likelihoods are raised: the part of several tests that is new (`repeated`).
        opinion: A second kind of evidence, if there is one: (bool[B, clients] that are asked about, bool[clients] that are
            set aside) -> float64[B] in nats; see `LayeredEvidence`.
        evenly_owned: Whether clients own the classes as evenly as one population gives them, or all but the suspects do,
            or these go so far that it does not matter.
        far: Whether it is only so because of what the suspects do: they go that far, or everybody else owns the classes
            evenly.
        push: How far clients go, where it is only so because of that: then an attack must go far itself. Else None.
        account: Whether honest clients could have sent what suspects seem to have sent; None where nobody has to ask, as
            all clients own the classes evenly, or it is not known.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import graded_screen
        >>> matrix, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
        >>> means = matrix @ rng.normal(size=(15, 200)) / matrix.sum(axis=1, keepdims=True)
        >>> losses = rng.normal(0.3, 0.01, size=(10, 4))
        >>> found = graded_screen(
        ...     means.reshape(10, 4, 50), losses, weights=matrix, samples=[100] * 15, erased=[False] * 10
        ... )
        >>> nobody, one = np.zeros((1, 15), dtype=bool), np.eye(15, dtype=bool)[:1]
        >>> bool(found.evidence.log_likelihood(one)[0] < found.evidence.log_likelihood(nobody)[0] + 3)  # honest clients only
        True
    """

    hypotheses: tuple[Rows, ...]
    mixture: MixedEvidence
    damage: Damage
    noise: FloatArray
    compared: FloatArray | None = None
    tests: int = 1
    power: float = 1.0
    opinion: Callable[[BoolArray, BoolArray], FloatArray] | None = None
    evenly_owned: bool = False
    far: bool = False
    push: Push | None = None
    account: HonestAccount | None = None

    def __post_init__(self) -> None:
        """Freeze."""
        object.__setattr__(self, "noise", frozen(self.noise, np.float64))
        if self.compared is not None:
            object.__setattr__(self, "compared", frozen(self.compared, np.float64))

    @property
    def strongest(self) -> Rows:
        """The most likely hypothesis."""
        return self.mixture.rows[0]

    @property
    def contrasts(self) -> int:
        """In how many ways the groups of a test are compared."""
        return len(self.strongest.gram) // self.tests

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log-likelihood ratio of each set being malicious against nobody, and of its doing harm."""
        members = sets.astype(np.float64)
        shift = moved(self.damage.shifts, members)
        harm = self.damage.log_harm(members, shift)
        harm[~sets.any(axis=1)] = np.log(0.5)
        likelihood: FloatArray = self.mixture.log_likelihood(members, shift) + self.power * harm
        return likelihood

    def raised(self, power: float) -> "GradedEvidence":
        """The same evidence with its likelihoods raised to a power, once."""
        return replace(self, mixture=replace(self.mixture, power=power), power=power)

    def since(self, grown: FloatArray) -> "GradedEvidence":
        """The same evidence where it is known how the rows of each class have grown; see `Rows`.

        Args:
            grown: float64[classes], in nats.
        """
        known = {
            one.labels: float(np.clip(grown[list(one.labels)].min(), 0.0, _GROWN)) if one.labels else 0.0
            for one in self.hypotheses
        }

        def of(rows: tuple[Rows, ...]) -> tuple[Rows, ...]:
            return tuple(replace(one, grown=known[one.labels]) for one in rows)

        return replace(self, hypotheses=of(self.hypotheses), mixture=replace(self.mixture, rows=of(self.mixture.rows)))

    def explained(self, sets: BoolArray) -> FloatArray:
        """float64[B]: how well each set explains a line, in whichever rows, mean of the test rounds; see `MixedEvidence`."""
        return self.mixture.explained(sets) / self.tests

    def some(self) -> float:
        """Evidence in nats that there is a line at all."""
        return self.mixture.some()

    def pointed_at(self, largest: int) -> BoolArray:
        """bool[B, clients]: sets that the strongest line points to; see `relaxed_sets`."""
        line = self.strongest.shift
        return relaxed_sets(line.shifts, line.direction, largest)

    def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
        """P-value of no loss rising with the suspects, the others set aside; see `Damage.p_value`."""
        losses, suspects = self.damage.without(aside), np.where(aside, 0.0, posterior)
        if len(losses.shifts) < 2:
            return 1.0
        few = self.opinion is None and len(losses.classes) < FEWEST_CLASSES
        return losses.p_value_of_few_classes(suspects) if few else losses.p_value(suspects)

    def confirmed(self, sets: BoolArray, aside: BoolArray) -> FloatArray:
        """float64[B]: nats in favour of each set by the second opinion, the others set aside; NaN if there is none."""
        return np.full(len(sets), np.nan) if self.opinion is None else self.opinion(sets, aside)

    def needs_no_opinion(self, suspects: BoolArray, aside: BoolArray) -> bool:
        """Whether classes are owned evenly, or these go where no honest client does, the others set aside."""
        return self.evenly_owned and (self.push is None or self.push.beyond_honest(suspects, aside))

    def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> bool | None:
        """Whether honest clients could send what these seem to have sent, the others set aside; None if not known."""
        return None if self.account is None else self.account.could_be_sent(suspects, aside)

    def one_owner_at_most(self, suspects: BoolArray) -> bool:
        """Whether it is known that all others own the classes evenly."""
        return self.account is not None and self.account.evenly_beside(suspects)

    def apart(self) -> ApartEvidence | None:
        """Evidence about clients that push each for itself, from all rows of the layer; None where outputs were compared."""
        rows = self.hypotheses[0]
        if rows.labels or rows.few is not None or rows.features <= len(rows.gram):
            return None
        return ApartEvidence(gram=rows.gram, shifts=rows.shift.shifts, features=rows.features, power=self.power)

    def aside(self, attackers: BoolArray) -> MixedEvidence | None:
        """Evidence about everybody else, in contrasts in which the updates of these clients cancel."""
        left = [one for one in (_without(rows, attackers) for rows in self.hypotheses) if one is not None]
        return mixed(left, self.power)

    def two_lines(self) -> float:
        """By how many nats there is a second line in the same rows, at a right angle to the strongest, against noise."""
        strongest = self.strongest
        values, vectors = np.linalg.eigh(strongest.gram)
        others = vectors[:, :-1]
        line = strongest.line(np.diag(values[:-1]), others.T @ strongest.shift.shifts)
        return 0.0 if line is None else self.power * line.some()

    def beside(self, attacks: Sequence[BoolArray]) -> MixedEvidence | None:
        """Evidence about one more attack, bool[clients] each being those that are known, in whichever rows it shows.

        Where a known set explains the strongest line of some rows, that line is taken out whole (attackers need not push
        equally hard); elsewhere only what that set moves.
        """
        left = []
        for rows in self.hypotheses:
            rest: Rows | None = rows
            for attackers in attacks:
                rest = None if rest is None else _beside(rest, attackers)
            if rest is not None:
                left.append(rest)
        return mixed(left, self.power)

    def given(self, attackers: BoolArray) -> ShiftEvidence | None:
        """Evidence about a second set, when this one's shift is known to be one of the two strongest lines."""
        strongest = self.strongest
        along = strongest.shift.shifts @ attackers.astype(np.float64)
        if len(strongest.gram) < 4 or not np.linalg.norm(along) > 0:
            return None
        complement = np.linalg.svd(along[:, None])[0][:, 1:]
        values, vectors = np.linalg.eigh(strongest.gram)
        # Of the plane of the two strongest lines, what is orthogonal to this shift; the noise is that of the other lines.
        plane = complement.T @ (vectors[:, -2:] * values[-2:]) @ vectors[:, -2:].T @ complement
        length, direction = np.linalg.eigh(plane)
        leading = np.outer(direction[:, -1], direction[:, -1])
        noise = float(values[:-2].mean())
        gram = noise * (np.eye(len(plane)) - leading) + max(length[-1], noise) * leading
        shifts = complement.T @ strongest.shift.shifts
        if strongest.few is not None:
            return strongest.few.line(gram, shifts)
        degrees = _effective_features(values[:-2], strongest)
        line = shift_evidence(gram, shifts, features=strongest.features, effective_features=degrees)
        return None if line is None else line.raised(self.power)

    def lines(self, count: int) -> tuple[ShiftEvidence, ...]:
        """Lines in the plane of the two strongest, at equal angles."""
        values, vectors = np.linalg.eigh(self.strongest.gram)
        values = np.maximum(values, 0.0)  # where nothing but one line differs the others round to below 0
        first, second = vectors[:, -1] * values[-1] ** 0.5, vectors[:, -2] * values[-2] ** 0.5
        turned = [np.cos(angle) * first + np.sin(angle) * second for angle in np.pi * np.arange(count) / count]
        return tuple(self.strongest.shift.towards(one / np.linalg.norm(one)).raised(self.power) for one in turned)


def _beside(rows: Rows, attackers: BoolArray) -> Rows | None:
    """The same rows without what a known set of attackers explains; None where nothing is left."""
    along = rows.shift.shifts @ attackers.astype(np.float64)
    size = float(along @ along)
    if not size > 0:
        return rows
    near = float(along @ rows.shift.direction) ** 2 / size > _NEAR
    if near or float(rows.shift.explained(attackers[None])[0]) > -_EXPLAINS:
        others = np.linalg.eigh(rows.gram).eigenvectors[:, :-1]
    else:
        others = np.linalg.svd(along[:, None])[0][:, 1:]
    gram = others.T @ rows.gram @ others
    line = rows.line(gram, others.T @ rows.shift.shifts)
    return None if line is None else replace(rows, gram=gram, shift=line, grown=0.0)


def _without(rows: Rows, clients: BoolArray) -> Rows | None:
    """The same rows in contrasts in which the updates of these clients cancel; None where nothing is left to compare."""
    left = cancelling(rows.shift.shifts, clients)
    gram = left.T @ rows.gram @ left
    line = rows.line(gram, left.T @ rows.shift.shifts)
    return None if line is None else replace(rows, gram=gram, shift=line, grown=0.0)


def _effective_features(rest: FloatArray, rows: Rows) -> float:
    """D of the noise beside two lines, by moments: E sum e = k t1, E sum e^2 = k (k + 1) t2 + k t1^2, D = t1^2 / t2."""
    k = len(rest)
    first, second = float(rest.sum()), float((rest**2).sum())
    spread = (second - first**2 / k) / (k * (k + 1) - 2) if k > 1 else 0.0
    return float(np.clip((first / k) ** 2 / max(spread, np.finfo(float).tiny), len(rows.gram), rows.features))
