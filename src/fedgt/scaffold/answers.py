"""What somebody who begins an app has to say, and what is checked about it."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from fedgt.defaults import COLLUDERS
from fedgt.errors import SpecError
from fedgt.ids import require_distinct_ids

Framework = Literal["scikit-learn", "torch"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)

_SITE = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_RESERVED = frozenset(
    {"server", "validation", "superlink", "ca", "certificates", "keys", "run", "terms", "localhost", "provision", "job"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The questions of `fedgt new`, answered.

    Attributes:
        sites: Their names, which become names of files: lower-case letters, digits, `-` and `_`.
        privacy: The promise: no combination of sums mixes fewer sites.
        framework: What the model in the app is written with.
        rounds: Of the run.
        run: The name of the run, of the same characters.

    Raises:
        SpecError: If a name cannot be one, two look alike, or a number makes no sense.
    """

    sites: tuple[str, ...]
    privacy: int
    framework: Framework
    rounds: int
    run: str

    def __post_init__(self) -> None:
        """Check."""
        for what, name in (*(("site", site) for site in self.sites), ("run", self.run)):
            if not _SITE.fullmatch(name):
                raise SpecError(
                    f"{what} {name!r:.60}: it becomes a file name, so 1 to 40 characters a-z, 0-9, - and _ are needed, "
                    "the first a letter or digit"
                )
        if taken := sorted(_RESERVED & set(self.sites)):
            raise SpecError(f"site {taken[0]!r}: a file of the app has this name, choose another")
        if len(set(self.sites)) < len(self.sites):
            raise SpecError(f"sites {', '.join(self.sites)}: each name once is needed")
        require_distinct_ids(self.sites)
        if self.framework not in FRAMEWORKS:
            raise SpecError(f"framework {self.framework!r:.60}; known are {', '.join(FRAMEWORKS)}")
        if self.privacy < COLLUDERS + 2:
            raise SpecError(
                f"privacy {self.privacy}: at least {COLLUDERS + 2} is needed, because {COLLUDERS} site may help a server "
                "that lies, and a site with an identity starts with no less"
            )
        if self.rounds < 1:
            raise SpecError(f"{self.rounds} rounds; at least 1 is needed")
