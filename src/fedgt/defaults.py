"""What is assumed where nobody says otherwise, each value written once.

Functions of all layers take their defaults from here, and `fedgt.federation.settings` makes options of a run of them.
"""

from typing import Final

BETA: Final = 0.5
"""Weight of a misdetection against a false alarm."""

KAPPA: Final = 0.2
"""Accepted P(all groups contaminated) at n_m^max, the largest number of malicious clients that is considered."""

ERROR_RATE: Final = 0.05
"""Assumed probability that a group's test is wrong, either way; the paper's."""

NOBODY: Final = 0.5
"""Prior probability that nobody is malicious, for graded evidence."""

UNDECIDED: Final = 0.02
"""Posteriors from this to one minus this are not decided, for graded evidence."""

SILHOUETTE_THRESHOLD: Final = 0.6
"""s^thres of the paper: below it the groups form one cluster."""

ESTIMATOR: Final = "negatives"
"""Where the estimated number of malicious clients comes from: the number of negative groups."""

METHOD: Final = "exact"
"""How outcomes are decoded."""

CLIP: Final = 8.0
"""Entries of an update are clipped to plus and minus this."""

FRACTION_BITS: Final = 24
"""The fixed-point step is 2^-24."""

COLLUDERS: Final = 1
"""Clients that may help a server which lies."""

NO_LIMIT: Final = 1.0
"""Of the disclosed share: the whole of an update."""
