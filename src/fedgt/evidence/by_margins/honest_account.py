"""Could honest clients have sent these sums? Then whoever stands out is suspicious, and not accused.

A step of cross-entropy on a sample pulls the row of its class towards the sample, and pushes the other rows away from it.
However often a client steps, and whatever classes it owns, its update is a sum of such pulls, with coefficients that are not
negative. One that owns a single class is no exception. One that mislabels is: it pushes the row of the right class away.

Two questions follow, and suspects are not accused if both are answered by yes. Are the sums explained nearly as well with
every client honest as with the suspects free to send anything? That is strict where clients own few classes. Where they own
all, each of them could make up for a suspect. So it is asked as well whether what the suspects seem to have sent is what an
honest client sends. That is strict where clients are alike, because then it is known what the suspects sent.

The mean inputs of each class are known from the server's few images. By how much these err is learnt from all sums at once,
because it is the same for all clients.
"""

from dataclasses import dataclass, field

import numpy as np

from fedgt.evidence.by_margins.spread import MORE_THAN_CHANCE, OwnedClasses
from fedgt.evidence.contrast import contrasts, mean_of_others
from fedgt.evidence.scores import checked_scores
from fedgt.types import BoolArray, FloatArray, IntArray, frozen

MISFIT = 3e-4
"""The part of the movement that no account explains: clients own few images, and the hard ones count more."""

NEEDED, NEEDED_EACH = 0.25, 0.05
"""Nats by which the sums must be explained better where suspects are free, and so much more for each of them. The more are
free, the better anything is explained. Chosen on seeds 900 to 911 of MNIST (decision 0042)."""

BESIDE = 0.01
"""The part of what suspects seem to have sent that no honest client sends must be below this, and below the noise. Owners of
a single class had 0.0084 at most on seeds 900 to 911, and who labels all as one class 0.0086 and more, far above the noise
where other clients are alike."""

FEWEST_IMAGES = 3
"""Of each class: with fewer its mean is so little known that it explains whatever the suspects do."""

_LEARNT, _STEPS = 6, 150
"""How often the errors of the mean inputs are learnt anew, and steps between. More steps explain the noise as well."""

_ALONE = 10
"""How often the search for a single client's pushes goes on."""

_RANK = 1e-9
"""Sums with less than this fraction of the largest are combinations of others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HonestAccount:
    """What is needed to explain the sums of one test round by honest clients.

    Attributes:
        moved: float64[groups, classes, classes]: by how much the centred mean logits of each class, of each group mean, have
            moved since the start of the round. Groups that are not compared are left out.
        weights: float64[groups, clients], the real weight of each client in each of these sums.
        products: float64[classes, classes]: [c, s] is the mean product of a sample of class c with one of class s, as the
            classification layer sees them; see `class_products`.
        errors: float64[classes, classes]: the variance of these means.
        one_at_most: Whether no more than one client is excused. That is so where several push along one line, and all others
            own the classes evenly: several owners of the same classes among clients that are alike are an attack. A backdoor
            looks like that, because no validation sample has its trigger.
        owned: Says how unevenly the others own the classes, if that is known. Nor are several excused where the others own
            them evenly.

    Examples:
        >>> import numpy as np
        >>> from fedgt import named_design
        >>> from fedgt.evidence import HonestAccount
        >>> rows, rng = named_design("graded-15x10-b").matrix.astype(float), np.random.default_rng(0)
        >>> products = np.eye(4) + 0.3
        >>> owned = rng.dirichlet(np.ones(4), size=15)  # what each client owns of four classes
        >>> pulls = np.eye(4) - np.full((4, 4), 0.25)  # each class pulls its own row, and pushes the other three
        >>> sent = np.einsum("jc,ct,cs->jst", owned, pulls, products)
        >>> shares = rows / rows.sum(axis=1, keepdims=True)
        >>> account = HonestAccount(
        ...     moved=np.tensordot(shares, sent, axes=1), weights=rows, products=products, errors=np.full((4, 4), 1e-4)
        ... )
        >>> account.explains(np.arange(15) == 3)
        True
        >>> sent[3] = np.einsum("c,ct,cs->st", np.ones(4), np.roll(pulls, 1, axis=0), products)  # all labels wrong
        >>> account = HonestAccount(
        ...     moved=np.tensordot(shares, sent, axes=1), weights=rows, products=products, errors=np.full((4, 4), 1e-4)
        ... )
        >>> account.explains(np.arange(15) == 3)
        False
    """

    moved: FloatArray
    weights: FloatArray
    products: FloatArray
    errors: FloatArray
    one_at_most: bool = False
    owned: OwnedClasses | None = None
    _known: dict[bytes, tuple[float, FloatArray]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Freeze."""
        for name in ("moved", "weights", "products", "errors"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    def explains(self, suspects: BoolArray) -> bool:
        """Whether these, bool[clients], could be honest: the sums say no, nor does what they seem to have sent."""
        if int(suspects.sum()) > 1 and (self.one_at_most or self.evenly_beside(suspects)):
            return False
        gain, products = self._compared(suspects)
        return gain < NEEDED + NEEDED_EACH * int(suspects.sum()) and self._could_be_sent(suspects, products)

    def evenly_beside(self, suspects: BoolArray) -> bool:
        """Whether it is known that everybody but bool[clients] owns the classes as evenly as one population gives them."""
        return self.owned is not None and self.owned.spread(suspects) <= MORE_THAN_CHANCE

    def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> bool:
        """Whether what these, bool[clients], seem to have sent in the mean is what honest clients send.

        Those who are set aside, bool[clients], may have sent anything: it cancels.
        """
        return self._could_be_sent(suspects, self._compared(suspects | aside)[1], aside)

    def gain(self, suspects: BoolArray) -> float:
        """By how many nats for each number the sums are explained better if these, bool[clients], may send anything."""
        return self._compared(suspects)[0]

    def _could_be_sent(self, suspects: BoolArray, products: FloatArray, aside: BoolArray | None = None) -> bool:
        beside, noise = self._beside(suspects, products, np.zeros_like(suspects) if aside is None else aside)
        return beside < min(BESIDE, noise)

    def _beside(self, suspects: BoolArray, products: FloatArray, aside: BoolArray) -> tuple[float, float]:
        """Which part of what these seem to have sent in the mean no honest client sends, and which part is noise.

        Both in units of the squared size of what they seem to have sent; 0 and infinity where the sums do not tell.
        """
        parts = contrasts(self.weights, np.ones(self.weights.shape[1])).without(aside)
        shift = parts.shifts[:, suspects].sum(axis=1)
        length = float(shift @ shift)
        if parts.size < 2 or not length > _RANK:
            return 0.0, np.inf
        moved = np.tensordot(parts.transform, self.moved, axes=1)
        away = np.tensordot(shift, moved, axes=1) / length
        scatter = float(((moved - np.multiply.outer(shift, away)) ** 2).sum()) / (parts.size - 1) / length
        shares = self.weights[:, suspects].sum(axis=1) / self.weights.sum(axis=1)
        without = self.moved - np.multiply.outer(shares, away)
        sent = np.tensordot(mean_of_others(self.weights, aside), without, axes=1) + away
        energy = float((sent**2).sum())
        if not energy > 0:
            return 0.0, np.inf
        alone = _Search(seats=np.ones((1, 1)), observed=sent[None], misfit=0.0)
        pushes = np.zeros((1, *products.shape))
        for _ in range(_ALONE):
            pushes = alone.pushes(products, np.zeros(1, dtype=np.bool_), pushes)
        return alone.left(products, pushes) / energy, scatter / energy

    def _compared(self, suspects: BoolArray) -> tuple[float, FloatArray]:
        """`gain`, and the products as they are learnt with the suspects free; remembered, as it takes long."""
        if suspects.tobytes() not in self._known:
            self._known[suspects.tobytes()] = self._newly_compared(suspects)
        return self._known[suspects.tobytes()]

    def _newly_compared(self, suspects: BoolArray) -> tuple[float, FloatArray]:
        heard = (self.weights != 0).any(axis=1)
        shares = self.weights[heard] / self.weights[heard].sum(axis=1, keepdims=True)
        left, scale, seats = np.linalg.svd(shares, full_matrices=False)
        known = scale > _RANK * scale.max(initial=0.0)
        observed = np.tensordot(left[:, known].T / scale[known, None], self.moved[heard], axes=1)
        energy = float((observed**2).sum())
        if not energy > 0 or not suspects.any():
            return 0.0, self.products
        search = _Search(seats=seats[known], observed=observed, misfit=MISFIT * energy)
        nobody = np.zeros(len(suspects), dtype=np.bool_)
        still = np.zeros((len(suspects), *self.products.shape))
        honest, products, pushes = self._explained(search, nobody, self.products, still)
        freely = self._explained(search, suspects, products, pushes)[0]
        # From the start, because products that explain the suspects as honest would explain what they sent, too.
        return honest - freely, self._explained(search, suspects, self.products, still)[1]

    def _explained(
        self, search: "_Search", free: BoolArray, products: FloatArray, pushes: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """How badly the sums are explained in nats for each number, with the products that were learnt, and the pushes."""
        for _ in range(_LEARNT):
            pushes = search.pushes(products, free, pushes)
            products = search.products(self.products, self.errors, pushes, search.left(products, pushes))
        pushes = search.pushes(products, free, pushes)
        changed = float(((products - self.products) ** 2 / self.errors).sum())
        badly = np.log(search.left(products, pushes) + search.misfit) + changed / search.observed.size
        return float(badly), products, pushes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """Least squares for what each client sends.

    Client j sends K^T A_j, where row c of A_j is by how much samples of class c have moved each row of the layer. Rows
    of A_j have sum 0. Of honest clients they are not above 0 outside the diagonal; less these entries are the pushes.

    Attributes:
        seats: float64[sums, clients] with orthonormal rows.
        observed: float64[sums, classes, classes].
        misfit: The squared error that no account explains.
    """

    seats: FloatArray
    observed: FloatArray
    misfit: float

    def pushes(self, products: FloatArray, free: BoolArray, start: FloatArray) -> FloatArray:
        """float64[clients, classes, classes]: the best, from some others on, by accelerated projected gradients."""
        classes = len(products)
        size = classes * float(np.linalg.norm(products, 2)) ** 2
        if not size > 0:
            return start
        together, squared = self.seats.T @ self.seats, products @ products.T
        towards = products @ np.tensordot(self.seats.T, self.observed, axes=1)
        own, least = np.arange(classes), np.where(free, -np.inf, 0.0)[:, None, None]
        best, ahead, speed = start, start, 1.0
        for _ in range(_STEPS):
            slope = squared @ np.tensordot(together, _moves(ahead), axes=1) - towards
            after = np.maximum(ahead - (slope[:, own, own][:, :, None] - slope) / size, least)
            after[:, own, own] = 0.0
            if float(((ahead - after) * (after - best)).sum()) > 0:  # too far: start anew from here
                ahead, speed = after, 1.0
            else:
                faster = (1.0 + (1.0 + 4.0 * speed**2) ** 0.5) / 2.0
                ahead, speed = after + (speed - 1.0) / faster * (after - best), faster
            best = after
        return best

    def left(self, products: FloatArray, pushes: FloatArray) -> float:
        """The squared error of this account."""
        sent = products.T @ np.tensordot(self.seats, _moves(pushes), axes=1)
        return float(((sent - self.observed) ** 2).sum())

    def products(self, expected: FloatArray, errors: FloatArray, pushes: FloatArray, left: float) -> FloatArray:
        """float64[classes, classes]: what the sums say about the products, by ridge regression."""
        classes = len(expected)
        noise = (left + self.misfit) / self.observed.size
        design = np.tensordot(self.seats, _moves(pushes), axes=1).transpose(0, 2, 1).reshape(-1, classes)
        rest = self.observed.transpose(0, 2, 1).reshape(-1, classes) - design @ expected
        both, along = design.T @ design / noise, design.T @ rest / noise
        changes = [
            errors[:, s] * np.linalg.solve(both * errors[:, s] + np.eye(classes), along[:, s]) for s in range(classes)
        ]
        learnt: FloatArray = expected + np.stack(changes, axis=1)
        return learnt


def _moves(pushes: FloatArray) -> FloatArray:
    """A of the pushes: less them outside the diagonal, and on it their sum."""
    own = np.arange(pushes.shape[1])
    moves = -pushes
    moves[:, own, own] = pushes.sum(axis=2)
    return moves


def class_products(inputs: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray] | None:
    """How alike samples of each two classes are, as the classification layer sees them, and the variance of these means.

    A sample does not count with itself. The layer is taken to have a bias.

    Args:
        inputs: float64[samples, features].
        labels: int64[samples], of all classes.

    Returns:
        float64[classes, classes] twice; None where some class has fewer than `FEWEST_IMAGES`, or nothing differs.

    Examples:
        >>> import numpy as np
        >>> from fedgt.evidence import class_products
        >>> products, errors = class_products(np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]), np.repeat([0, 1], 3))
        >>> products.round(2).tolist()  # with the bias: 1 + (0 * 1 + 0 * 2 + 1 * 2) / 3, and 1 + the product of the means
        [[1.67, 5.0], [5.0, 16.67]]
    """
    checked_scores(np.zeros((len(labels), int(labels.max(initial=0)) + 1)), labels)
    counts = np.bincount(labels)
    if counts.min() < FEWEST_IMAGES:
        return None
    classes = len(counts)
    member = (labels[:, None] == np.arange(classes)).astype(np.float64)
    kernel = inputs @ inputs.T + 1.0
    near = kernel @ member
    own = np.arange(len(labels))
    near[own, labels] -= np.diag(kernel)
    near /= counts - member
    products: FloatArray = member.T @ near / counts[:, None]
    within = ((near - products[labels]) ** 2).sum(axis=0) / (len(labels) - classes)
    if not (within > 0).all():
        return None
    return products, within / counts[:, None]
