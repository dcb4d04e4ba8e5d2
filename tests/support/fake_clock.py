"""A clock that moves when it is asked: a deadline passes after so many questions, on every machine."""

import math

from fedgt.deadline import Deadline


class FakeClock:
    """One second for every question."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return float(self.asked)


def after(questions: int) -> Deadline:
    """A deadline that has passed when it is asked for the time once more."""
    return Deadline(questions, clock=FakeClock())


def questions_of(seconds: float = math.inf) -> tuple[Deadline, FakeClock]:
    """A deadline that is too far to pass, and its clock, which counts the questions."""
    clock = FakeClock()
    return Deadline(min(seconds, 1e12), clock=clock), clock
