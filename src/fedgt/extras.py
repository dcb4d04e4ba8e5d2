"""How an extra of fedgt is installed, said in one place.

fedgt is on no package index. A line that installs it by its name alone would fetch whatever somebody else puts there.
"""

from typing import Literal, TypeAlias

Extra: TypeAlias = Literal["plots", "flower", "nvflare", "train"]


def how_to_install(extra: Extra) -> str:
    """What to type, for the end of a message that says what is missing.

    Args:
        extra: The extra of `pyproject.toml` that brings it.
    """
    return (
        f"pip install '.[{extra}]' in a checkout of fedgt, or pip install 'WHEEL[{extra}]' with the path of its wheel"
    )
