"""Every exception of fedgt.

A message says what was given, what was needed and what to do. Bad values are also `ValueError`, failures of a running
protocol are also `RuntimeError`, so that callers who know nothing of fedgt still catch the right kind.
"""

import re

_SCALAR = re.compile(
    r"\bnp\.(?:(?:u?int|float|complex|longdouble|bool|str|bytes|datetime|timedelta|void)\w*\((b?'[^']*'|[^()']*)\)|(True|False)_)"
)
"""How numpy 2 represents its numbers and strings: np.int64(2), np.str_('a'), np.True_."""


class FedGTError(Exception):
    """The root: catch this to catch everything that fedgt raises on purpose.

    Numbers that came from numpy are shown as numbers, whoever formats a message.

    Examples:
        >>> from fedgt import FedGTError, named_design
        >>> try:
        ...     named_design("bch-15x9")
        ... except FedGTError as error:
        ...     print(type(error).__name__)
        DesignError
    """

    def __init__(self, *args: object) -> None:
        """Take the message."""
        super().__init__(*(_SCALAR.sub(_value, one) if isinstance(one, str) else one for one in args))


class DesignError(FedGTError, ValueError):
    """An assignment matrix, code or grouping that cannot be used."""


class ShapeError(FedGTError, ValueError):
    """An array whose shape, dtype or values do not fit (the message names the tensor or argument)."""


class SpecError(FedGTError, ValueError):
    """A configuration, file or option that is wrong."""


class CalibrationError(FedGTError, ValueError):
    """A threshold or estimate that cannot be computed from what was given."""


class ContradictoryOutcomesError(FedGTError, ValueError):
    """Outcomes that have probability zero under the stated error rates and prior."""


class ProtocolError(FedGTError, RuntimeError):
    """A secure aggregation message or state that the protocol forbids."""


class TooFewSharesError(ProtocolError):
    """Fewer shares than the threshold: the sum of this group cannot be opened."""


class ModulusOverflowError(ProtocolError):
    """The largest possible sum does not fit into the ring (the message shows the arithmetic)."""


class PrivacyError(FedGTError, RuntimeError):
    """Opening an aggregate would break the promised minimum support r."""


class OutOfTimeError(FedGTError, RuntimeError):
    """Work that was not done within the seconds it was given (`fedgt.deadline`)."""


class RunHaltedError(FedGTError, RuntimeError):
    """A run that may not go on: a test that cannot tell, too few clients left, or a sum that nobody can be asked for.

    Attributes:
        step: The round that it stopped after, with what was opened and decided; None where none was finished.

    Examples:
        >>> from fedgt import FedGTError, RunHaltedError
        >>> issubclass(RunHaltedError, FedGTError) and issubclass(RunHaltedError, RuntimeError)
        True
        >>> RunHaltedError("nobody is left").step is None
        True
    """

    def __init__(self, reason: str, step: object = None) -> None:
        """Keep the round beside the reason."""
        super().__init__(reason)
        self.step = step


class ClientsFailedError(FedGTError, RuntimeError):
    """All clients of a round failed alike: a fault of the program, not dropouts. The first error is the cause."""


class SignatureError(ProtocolError):
    """A message, key or list that is not signed by the pinned identity it should come from."""


class PolicyError(ProtocolError):
    """A plan that this client's own policy, or the terms it has pinned for the run, does not allow."""


def _value(found: re.Match[str]) -> str:
    return found[1] or found[2] or ""
