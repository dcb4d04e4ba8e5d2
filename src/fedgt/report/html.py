"""The page: one self-contained file, rendered from the content of `report.json` and from nothing else.

Every value is written through a function that names its path, so that the page can be checked against `report.json`: the
element carries `data-field` (the path) and, for numbers, `data-value` (the exact value). Values are escaped here, not in the
template. The content security policy allows one style sheet, by its hash, and nothing else: no script, image or request.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedgt.report.formats import exact, written
from fedgt.report.paths import value_at

Tag = Literal["bdi", "span", "tspan"]

_DASHES = ("", "7 4", "2 3")
_SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus")


def render_html(report: Mapping[str, Any]) -> str:
    """The page as text (UTF-8 when written).

    Args:
        report: As `fedgt.report.audit` gives it, or as read from `report.json`.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import audit, render_html
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     page = render_html(audit(Path(folder)))
        >>> "https://" in page.partition("<body")[0]  # it loads nothing
        False
    """
    environment = _environment()
    style = environment.loader.get_source(environment, "report.css")[0] if environment.loader else ""
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()

    def say(path: str, tag: Tag = "bdi") -> Markup:
        """A text of the report; `bdi` keeps a name in a right-to-left script from turning its surroundings."""
        return Markup('<{0} data-field="{1}">{2}</{0}>').format(tag, path, value_at(report, path))

    def num(path: str, kind: str, tag: Tag = "span") -> Markup:
        """A number of the report."""
        value = value_at(report, path)
        return Markup('<{0} class="n" data-field="{1}" data-kind="{2}" data-value="{3}">{4}</{0}>').format(
            tag, path, kind, exact(value), written(value, kind)
        )

    template = environment.get_template("report.html.j2")
    return template.render(
        report=report,
        say=say,
        num=num,
        place=place,
        marker=marker,
        crowded=crowded,
        shade=shade,
        dashes=_DASHES,
        style=Markup(style),  # noqa: S704  our own file, no user content
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("fedgt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def place(value: float, axis: Mapping[str, Any], start: float, end: float) -> str:
    """Where a value lies in the drawing, in its units."""
    share = (value - axis["low"]) / (axis["high"] - axis["low"])
    return f"{start + share * (end - start):.2f}"


def marker(number: int, x: str, y: str) -> Markup:
    """A point whose shape tells its cluster, so that colour is never the only sign."""
    a, b = float(x), float(y)
    shape = _SHAPES[number % len(_SHAPES)]
    if shape == "circle":
        return Markup('<circle class="c{}" cx="{}" cy="{}" r="6"/>').format(number % len(_SHAPES), x, y)
    outlines = {
        "square": ((-5.5, -5.5), (5.5, -5.5), (5.5, 5.5), (-5.5, 5.5)),
        "triangle": ((0, -7), (6.5, 5), (-6.5, 5)),
        "diamond": ((0, -7.5), (7.5, 0), (0, 7.5), (-7.5, 0)),
        "down": ((0, 7), (6.5, -5), (-6.5, -5)),
        "plus": (
            *((-2, -7), (2, -7), (2, -2), (7, -2), (7, 2), (2, 2)),
            *((2, 7), (-2, 7), (-2, 2), (-7, 2), (-7, -2), (-2, -2)),
        ),
    }
    points = " ".join(f"{a + dx:.2f},{b + dy:.2f}" for dx, dy in outlines[shape])
    return Markup('<polygon class="c{}" points="{}"/>').format(number % len(_SHAPES), points)


def shade(loss: Any, losses: Sequence[Any]) -> str:
    """How dark a group of graded evidence is drawn: from 0.12 (the best) to 1 (the worst loss); 0 where it is unknown."""
    known = [one for one in losses if isinstance(one, int | float)]
    if not isinstance(loss, int | float):
        return "0"
    spread = max(known) - min(known)
    return f"{0.12 + 0.88 * ((loss - min(known)) / spread if spread else 0.0):.2f}"


def crowded(number: int, scatter: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the usual place of a point's label, to its right, is taken by another point."""

    def at(one: int) -> tuple[float, float]:
        x = float(place(groups[one]["projection"], scatter["x"], 0.0, 514.0))
        return x, float(place(groups[one][scatter["vertical"]], scatter["y"], 268.0, 0.0))

    x, y = at(number)
    return any(
        other != number and -14 <= a - x <= 42 and abs(b - y) <= 16 and (a, other) > (x, number)
        for other in scatter["groups"]
        for a, b in [at(other)]
    )
