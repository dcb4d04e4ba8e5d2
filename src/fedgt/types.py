"""The symbol table: the few values that travel between stages, with their shapes and units.

Client numbers and group numbers are 0-based columns and rows of the assignment matrix. Log-odds are in nats and are
log P(benign | t) - log P(malicious | t), as `L^APP` in the paper: small means suspicious.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedgt.errors import FedGTError, ShapeError, SpecError

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
BitArray: TypeAlias = npt.NDArray[np.uint8]

Parameters: TypeAlias = Mapping[str, npt.NDArray[np.floating]]
"""A model as the wire sees it: tensor name -> array, in a fixed order."""

NEGATIVE, POSITIVE, ERASED = 0, 1, -1

LARGEST_COEFFICIENT = 255
"""By which a client multiplies its update in a group, at most, before it is masked."""


ScalarT = TypeVar("ScalarT", bound=np.generic)


def frozen(array: npt.ArrayLike, dtype: type[ScalarT]) -> npt.NDArray[ScalarT]:
    """A read-only copy, so that a frozen dataclass is frozen all the way down.

    Examples:
        >>> import numpy as np
        >>> from fedgt.types import frozen
        >>> frozen([1, 2, 3], np.int64).flags.writeable
        False
    """
    copy: npt.NDArray[ScalarT] = np.array(array, dtype=dtype)
    copy.setflags(write=False)
    return copy


def require_model(parameters: object) -> None:
    """Refuse what is no model: a `state_dict` of torch, lists, or an object of some framework.

    Args:
        parameters: What should be a mapping from tensor names to numpy arrays of floats, integers or booleans.

    Raises:
        ShapeError: Names the tensor, what it is, and how to make an array of it.

    Examples:
        >>> import numpy as np
        >>> from fedgt.types import require_model
        >>> require_model({"weight": np.zeros((10, 64))})  # raises if it is no model
        >>> try:
        ...     require_model({"weight": [0.0, 1.0]})
        ... except ValueError as error:
        ...     print(error)
        tensor 'weight' of the model is a list; a numpy array is needed: make one of each with np.asarray(tensor)
    """
    if not isinstance(parameters, Mapping) or not parameters:
        what = "is empty" if isinstance(parameters, Mapping) else f"is a {type(parameters).__name__}"
        raise ShapeError(f"the model {what}; a dict of arrays is needed: tensor name -> array")
    for name, array in parameters.items():
        if not isinstance(name, str):
            raise ShapeError(f"the model has a tensor named {name!r:.80}, a {type(name).__name__}; names are strings")
        if not isinstance(array, np.ndarray | np.generic):
            how = "tensor.detach().cpu().numpy()" if hasattr(array, "detach") else "np.asarray(tensor)"
            raise ShapeError(
                f"tensor {name!r:.80} of the model is a {type(array).__name__}; a numpy array is needed: make one of each "
                f"with {how}"
            )
        if array.dtype.kind not in "fiub":
            raise ShapeError(
                f"tensor {name!r:.80} of the model has dtype {array.dtype}; floats, integers or booleans are needed"
            )
    if not any(array.dtype.kind == "f" for array in parameters.values()):
        raise ShapeError(f"no tensor of the model ({', '.join(parameters)}) is floating-point: nothing can be averaged")


def as_array(value: object, name: str, *, error: type[FedGTError] = ShapeError) -> npt.NDArray[Any]:
    """An array of numbers (or strings) out of whatever a user gives.

    Args:
        value: The argument.
        name: What to call it in a message.
        error: What to raise.

    Raises:
        FedGTError: `error`, if rows have different lengths, or entries are no single values.

    Examples:
        >>> from fedgt.types import as_array
        >>> as_array([[1, 2], [3, 4]], "rows").shape
        (2, 2)
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, OverflowError) as problem:
        raise error(f"{name}: no array can be made of them ({problem})") from None
    if array.dtype.kind not in "biufcUS":
        kind = "Python objects" if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise error(f"{name}: an array of numbers is needed, not of {kind}")
    return array


def as_numbers(value: object, name: str, *, error: type[FedGTError] = ShapeError) -> FloatArray:
    """float64[...] out of whatever a user gives: booleans and integers too, NaN and infinity as they are; see `as_array`.

    Examples:
        >>> from fedgt.types import as_numbers
        >>> as_numbers([True, False], "weights").tolist()
        [1.0, 0.0]
    """
    array = as_array(value, name, error=error)
    if array.dtype.kind not in "biuf":
        raise error(f"{name}: real numbers are needed, not dtype {array.dtype}")
    return array.astype(np.float64)


def as_flags(value: object, name: str) -> BoolArray:
    """bool[...] out of whatever a user gives: booleans, or the numbers 0 and 1; see `as_array`.

    Examples:
        >>> from fedgt.types import as_flags
        >>> as_flags([1, 0], "erasures").tolist()
        [True, False]
    """
    array = as_array(value, name)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ShapeError(f"{name}: true and false, or 1 and 0, are needed, not dtype {array.dtype} with other values")
    return array.astype(np.bool_)


def as_integers(value: object, name: str) -> IntArray:
    """int64[...] out of whatever a user gives; see `as_array`.

    Examples:
        >>> from fedgt.types import as_integers
        >>> as_integers([3, 1], "labels").tolist()
        [3, 1]
    """
    array = as_array(value, name)
    if not array.size:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ShapeError(f"{name}: integers are needed, not dtype {array.dtype}")
    if array.dtype.kind == "u" and int(array.max()) >= 2**63:
        raise ShapeError(f"{name}: integers below 2^63 are needed")
    return array.astype(np.int64)


def as_number(value: object, name: str, *, error: type[FedGTError] = SpecError) -> float:
    """A float out of one real number that is no truth value.

    Raises:
        FedGTError: `error`, if it is something else.

    Examples:
        >>> from fedgt.types import as_number
        >>> as_number(3, "the clip")
        3.0
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise error(f"{name} = {value!r:.80}; a number is needed")
    try:
        return float(value)
    except OverflowError:
        raise error(f"{name} is beyond the range of floating-point numbers") from None


def as_count(value: object, name: str, *, error: type[FedGTError] = SpecError) -> int:
    """An int out of one integer that is no truth value; see `as_number`.

    Examples:
        >>> from fedgt.types import as_count
        >>> as_count(3, "rounds")
        3
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise error(f"{name} = {value!r:.80}; an integer is needed")
    return int(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """What the group tests said: the vector t of the paper, with erasures.

    Attributes:
        values: int8[groups]; element i is 0 (negative: no malicious client found), 1 (positive) or -1 (erased: the sum
            of group i was not opened or could not be tested).

    Raises:
        ShapeError: If the values are not one-dimensional or hold anything but 0, 1 and -1.

    Examples:
        >>> from fedgt import Outcomes
        >>> outcomes = Outcomes.parse("1101?000")
        >>> outcomes.negatives, int(outcomes.present.sum()), str(outcomes)
        (4, 7, '1101?000')
    """

    values: npt.NDArray[np.int8]

    def __post_init__(self) -> None:
        """Freeze and check."""
        values = as_array(self.values, "outcomes")
        if (
            values.ndim != 1
            or values.dtype.kind not in "biuf"
            or not np.isin(values, (NEGATIVE, POSITIVE, ERASED)).all()
        ):
            raise ShapeError(
                f"outcomes must be a vector of 0 (negative), 1 (positive) and -1 (erased), "
                f"got shape {values.shape} with values {np.unique(values)[:8].tolist()}"
            )
        object.__setattr__(self, "values", frozen(values, np.int8))

    @classmethod
    def parse(cls, text: str) -> "Outcomes":
        """Read a string such as `1101?000`: one character a group, `?` for an erased outcome.

        Raises:
            SpecError: If a character is none of `0`, `1`, `?`.
        """
        codes = {"0": NEGATIVE, "1": POSITIVE, "?": ERASED}
        wrong = sorted(set(text) - set(codes))
        if wrong or not text:
            raise SpecError(
                f"outcomes {text!r}: one character per group is needed, 0 (negative), 1 (positive) or ? (erased)"
                + (f"; found {', '.join(map(repr, wrong))}" if wrong else "")
            )
        return cls(values=np.array([codes[character] for character in text], dtype=np.int8))

    def __str__(self) -> str:
        """The same string that `parse` reads."""
        return "".join("?" if value == ERASED else str(value) for value in self.values.tolist())

    @property
    def present(self) -> BoolArray:
        """bool[groups]: which groups have an outcome."""
        return np.not_equal(self.values, ERASED)

    @property
    def negatives(self) -> int:
        """The number of negative groups, z-hat of the paper."""
        return int((self.values == NEGATIVE).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRates:
    """How noisy a group test is: Q(t_i | s_i) of section IV.F of the paper, with the two directions kept apart.

    Attributes:
        false_alarm: P(t = 1 | s = 0), a probability.
        misdetection: P(t = 0 | s = 1), a probability.

    Raises:
        SpecError: If a rate is not a probability.

    Examples:
        >>> from fedgt import ErrorRates
        >>> ErrorRates(false_alarm=0.05, misdetection=0.10)
        ErrorRates(false_alarm=0.05, misdetection=0.1)
        >>> ErrorRates.symmetric(0.05).misdetection
        0.05
    """

    false_alarm: float
    misdetection: float

    def __post_init__(self) -> None:
        """Check the range."""
        for name, rate in (("false alarm", self.false_alarm), ("misdetection", self.misdetection)):
            if not 0.0 <= as_number(rate, f"the {name} rate") <= 1.0:
                raise SpecError(f"the {name} rate is {rate}; a probability from 0 to 1 is needed")

    @classmethod
    def symmetric(cls, crossover: float) -> "ErrorRates":
        """The binary symmetric channel with crossover probability p, as in the paper."""
        return cls(false_alarm=crossover, misdetection=crossover)


class SetEvidence(Protocol):
    """Evidence that is correlated across groups: it can only score whole sets of malicious clients."""

    def log_likelihood(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log P(observation | exactly these clients are malicious) for bool[B, clients].

        Several threads may ask at once.
        """
        ...


class BoundedEvidence(SetEvidence, Protocol):
    """Evidence with a bound that costs nothing."""

    def some(self) -> float:
        """By how many nats there is a shift at all, whoever explains it, against none: no set has more evidence."""
        ...


class ExplainingEvidence(BoundedEvidence, Protocol):
    """Evidence that also says how well a set fits, whatever the evidence is worth."""

    def explained(self, sets: BoolArray) -> FloatArray:
        """float64[B]: log-density of the observed shift under each set, less that of a perfect fit; about 0 or below."""
        ...


class EnergyEvidence(SetEvidence, Protocol):
    """Evidence about clients that push each for itself, with the energy that each puts into its groups."""

    def energies(self) -> FloatArray:
        """float64[clients]: the energy of each client's push, in units of all that is seen."""
        ...

    def stands_out(self) -> bool:
        """Whether some client has far more energy than most."""
        ...


@runtime_checkable
class PointingEvidence(SetEvidence, Protocol):
    """Evidence that knows where the best sets may be, which helps where there are too many to score."""

    def pointed_at(self, largest: int) -> BoolArray:
        """bool[B, clients]: sets of at most this size to begin a search with."""
        ...


@runtime_checkable
class LayeredEvidence(ExplainingEvidence, Protocol):
    """Evidence from which the part that one set explains can be taken away, to ask whether there is a second attack."""

    @property
    def contrasts(self) -> int:
        """In how many ways the groups of a test are compared."""
        ...

    def harm(self, posterior: FloatArray, aside: BoolArray) -> float:
        """P-value, corrected for the number of classes, of no loss rising with the suspects, float64[clients].

        Whatever those do who are set aside, bool[clients], cancels.
        """
        ...

    def confirmed(self, sets: BoolArray, aside: BoolArray) -> FloatArray:
        """float64[B]: nats by which other evidence speaks for bool[B, clients], with bool[clients] set aside.

        NaN where there is none.
        """
        ...

    @property
    def evenly_owned(self) -> bool:
        """Whether clients own the classes evenly, or some suspects go where no honest one does."""
        ...

    def needs_no_opinion(self, suspects: BoolArray, aside: BoolArray) -> bool:
        """Whether no other evidence about bool[clients] is needed, with bool[clients] set aside.

        Clients own the classes evenly, or these suspects go where no honest client does.
        """
        ...

    def could_be_sent(self, suspects: BoolArray, aside: BoolArray) -> bool | None:
        """Whether honest clients could send what bool[clients] seem to have sent, with bool[clients] set aside.

        None where that is not known, or does not matter.
        """
        ...

    def one_owner_at_most(self, suspects: BoolArray) -> bool:
        """Whether several of bool[clients] are not all honest owners of few classes, because all others own them evenly."""
        ...

    def apart(self) -> "EnergyEvidence | None":
        """Evidence about clients that push each in a direction of its own; None where there is none."""
        ...

    def aside(self, attackers: BoolArray) -> BoundedEvidence | None:
        """Evidence about everybody else, whatever bool[clients] did; None where nothing is left."""
        ...

    def two_lines(self) -> float:
        """By how many nats there are two shifts in the same part of the model against one."""
        ...

    def beside(self, attacks: Sequence[BoolArray]) -> BoundedEvidence | None:
        """Evidence about a further attack, bool[clients] each being those that are known; None where nothing is left."""
        ...

    def given(self, attackers: BoolArray) -> "ExplainingEvidence | None":
        """Evidence about a second set, bool[clients] being one that attacks already; None where nothing is left."""
        ...

    def lines(self, count: int) -> Sequence[SetEvidence]:
        """Evidence about lines between the two strongest shifts, for a search to start from."""
        ...
