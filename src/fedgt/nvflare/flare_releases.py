"""Which releases of NVIDIA FLARE are supported.

Only 2.9: its Collab API is new, and a job names classes by paths that FLARE calls internal (`fedgt.nvflare.flare_job`).
"""

from fedgt.engine.releases import Releases

FLARE = Releases(package="nvflare", oldest=(2, 9), below=(2, 10), extra="nvflare")
RANGE = FLARE.words


def require_supported(installed: str | None = None) -> None:
    """Check the installed release; see `Releases.require`."""
    FLARE.require(installed)
