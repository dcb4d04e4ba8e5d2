"""When long work has to stop and say how far it came."""

import math
import time
from collections.abc import Callable

from fedgt.errors import OutOfTimeError, SpecError

SECONDS = 20.0
"""How long a search or a proof on the command line goes on, unless more is asked for."""


class Deadline:
    """So many seconds from now, by a clock that only goes forward.

    Work that is proved or counted asks `check` between its steps, so that no single step is long. Work that improves asks
    `passed`, and keeps what it has. Accounts of privacy have no deadline: server and clients must come to equal ones.

    Args:
        seconds: Above 0; infinity never passes.
        clock: Seconds from any moment on.

    Raises:
        SpecError: If the seconds are not above 0.
    """

    def __init__(self, seconds: float = SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock."""
        if not seconds > 0:
            raise SpecError(f"seconds = {seconds}; a number above 0 is needed")
        self.seconds = seconds
        self._clock = clock
        self._start = clock() if seconds < math.inf else 0.0

    def passed(self) -> bool:
        """Whether the time is up."""
        return self.seconds < math.inf and self._clock() - self._start >= self.seconds

    def check(self) -> None:
        """Stop here if the time is up.

        Raises:
            OutOfTimeError: If so.
        """
        if self.passed():
            raise OutOfTimeError(f"not done after {self.seconds:g} s; give it more seconds")

    def part(self, share: float) -> "Deadline":
        """A deadline from the same start after a share of the seconds, above 0 and up to 1."""
        sooner = Deadline(self.seconds * share, clock=self._clock)
        sooner._start = self._start
        return sooner


NEVER = Deadline(math.inf)
"""For work whose steps are bounded otherwise."""
