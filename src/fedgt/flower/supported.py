"""Which releases of Flower are supported."""

from fedgt.engine.releases import Releases

FLOWER = Releases(package="flwr", oldest=(1, 42), below=(2, 0), extra="flower")
RANGE = FLOWER.words


def require_supported(installed: str | None = None) -> None:
    """Check the installed release; see `Releases.require`."""
    FLOWER.require(installed)
