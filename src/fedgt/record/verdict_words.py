"""What is said about a client: each word once, with the one meaning that it has everywhere.

The command line, `result.json`, the report and the guides read this list.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

VerdictName = Literal["keep", "exclude", "exclude (uncertain)", "suspicious", "undecided", "untested"]

MEANINGS: Mapping[VerdictName, str] = MappingProxyType(
    {
        "exclude": "the tests point to the client",
        "exclude (uncertain)": "the tests cannot tell; the client is left out, because to keep it would be the larger risk",
        "suspicious": "the client stands out as attackers do, but no harm is shown, or a second look does not confirm it",
        "undecided": "the tests cannot tell",
        "untested": "the client is in no sum that could be compared, so nothing is known about it",
        "keep": "the tests point away from the client; what they cannot see, it may still do",
    }
)
"""What each word means, the most suspicious first. Who is left out is said beside it: the policies may leave out those who
are suspicious or untested, too."""
