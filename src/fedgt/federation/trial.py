"""What is known about a client that a test has named, and that may come back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A client that a test has named, and what later tests have said about it.

    Attributes:
        named_in: The round of the test that has named it.
        push: By how much it would have had to push alone to be named in 9 of 10 draws of that test, in units of the honest
            spread; infinite where no push is enough, or it is not known.
        cleared_in: The rounds of the latest tests, one after the other, that would have named it, and did not.
        back_in: The round in which it came back; 0 where it has not. It does so once.
    """

    named_in: int
    push: float
    cleared_in: tuple[int, ...] = ()
    back_in: int = 0
