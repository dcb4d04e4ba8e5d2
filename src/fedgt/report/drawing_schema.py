"""What the pictures of a report show, as the part `figures` of `report.json`; see `fedgt.report.schema`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fedgt.record.verdict_words import VerdictName


class Part(BaseModel):
    """A part of `report.json`: all of its fields are known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Axis(Part):
    """A range with its ticks."""

    low: float
    high: float
    ticks: list[float]


class Series(Part):
    """A curve: a key of the rounds, and [round, value] pairs."""

    name: str
    points: list[list[float]]


class Panel(Part):
    """Curves with one unit."""

    unit: Literal["percent"]
    series: list[Series]
    x: Axis
    y: Axis


class Curves(Part):
    """Measurements over rounds."""

    test_rounds: list[int]
    panels: list[Panel]


class Scatter(Part):
    """Groups in the plane of their evidence."""

    groups: list[int]
    vertical: Literal["utility", "loss"]
    x: Axis
    y: Axis


class FirstGroup(Part):
    """A column of the first picture."""

    group: int
    measured: float | None = Field(description="Where its sum lies; of one bit a group 1 is positive.")
    predicted: float | None = Field(description="Where it would lie if exactly these clients pushed alike.")
    named: float = Field(description="The share of these clients in it.")


class FirstClient(Part):
    """A row of the first picture."""

    client: str
    word: VerdictName
    left_out: bool
    groups: list[int]


class First(Part):
    """Who is in which group, and where the sums lie against what the verdict predicts."""

    round: int
    why: Literal["named", "suspicious", "nobody"] = Field(description="Of which clients the prediction is made.")
    binary: bool
    groups: list[FirstGroup]
    clients: list[FirstClient]
    hidden: int = Field(description="Kept clients that are not drawn.")
    explained: float | None = Field(description="Which part of how the sums differ the prediction explains.")
    y: Axis | None


class FiguresPart(Part):
    """What the pictures show."""

    first: First | None
    curves: Curves | None
    scatter: Scatter | None
