"""Which releases of a framework an engine supports."""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from fedgt.errors import SpecError
from fedgt.extras import Extra, how_to_install


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """A range of releases of one package.

    Attributes:
        package: Its name on an index.
        oldest: The first release that is supported, its first two numbers.
        below: The first one that is not any more.
        extra: The extra of fedgt that brings it.
    """

    package: str
    oldest: tuple[int, int]
    below: tuple[int, int]
    extra: Extra

    @property
    def words(self) -> str:
        """The range as people write it."""
        below = f"{self.below[0]}" if self.below[1] == 0 else f"{self.below[0]}.{self.below[1]}"
        return f"{self.package} >= {self.oldest[0]}.{self.oldest[1]}, < {below}"

    def require(self, installed: str | None = None) -> None:
        """Check the installed release.

        Args:
            installed: Its version; looked up if not given.

        Raises:
            SpecError: If the package is missing or outside the range.
        """
        needs = f"fedgt.{self.extra} needs {self.words}"
        if installed is None:
            try:
                installed = version(self.package)
            except PackageNotFoundError as error:
                raise SpecError(f"{needs}, which is not installed: {how_to_install(self.extra)}") from error
        numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
        if not self.oldest <= numbers < self.below:
            raise SpecError(f"{needs}; {self.package} {installed} is installed: {how_to_install(self.extra)}")
