"""Which releases of Flower are supported."""

import re
from importlib.metadata import PackageNotFoundError, version

from fedgt.errors import SpecError
from fedgt.extras import how_to_install

OLDEST, BELOW = (1, 42), (2, 0)
RANGE = "flwr >= 1.42, < 2"


def require_supported(installed: str | None = None) -> None:
    """Check the installed release.

    Args:
        installed: Its version; looked up if not given.

    Raises:
        SpecError: If Flower is missing or outside the supported range.
    """
    if installed is None:
        try:
            installed = version("flwr")
        except PackageNotFoundError as error:
            raise SpecError(
                f"fedgt.flower needs {RANGE}, which is not installed: {how_to_install('flower')}"
            ) from error
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if not OLDEST <= numbers < BELOW:
        raise SpecError(f"fedgt.flower needs {RANGE}; flwr {installed} is installed: {how_to_install('flower')}")
