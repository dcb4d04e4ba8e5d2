"""Find and remove malicious clients in federated learning without giving up secure aggregation.

The names below are the public interface for a federation of your own; `fedgt.decode.decode` is reached through its module,
whose name it shares. Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from fedgt._version import __version__
from fedgt.lazy_names import lazy_names

if TYPE_CHECKING:
    from fedgt.design import (
        Design,
        all_contaminated,
        bch,
        cyclic,
        from_matrix,
        identity,
        max_malicious,
        named_design,
        read_design,
        single_group,
    )
    from fedgt.engine import Client, ClientEndpoint, LocalTransport, TrainedModel, Transport, secure_sums
    from fedgt.errors import FedGTError, RunHaltedError
    from fedgt.federation import DecodeSettings, FederationRun, ScreenSettings, SumSettings, Validation
    from fedgt.grouping import Grouping, assign
    from fedgt.privacy import Ledger, minimum_support
    from fedgt.types import ErrorRates, Outcomes, Parameters

__all__ = [
    "Client",
    "ClientEndpoint",
    "DecodeSettings",
    "Design",
    "ErrorRates",
    "FedGTError",
    "FederationRun",
    "Grouping",
    "Ledger",
    "LocalTransport",
    "Outcomes",
    "Parameters",
    "RunHaltedError",
    "ScreenSettings",
    "SumSettings",
    "TrainedModel",
    "Transport",
    "Validation",
    "__version__",
    "all_contaminated",
    "assign",
    "bch",
    "cyclic",
    "from_matrix",
    "identity",
    "max_malicious",
    "minimum_support",
    "named_design",
    "read_design",
    "secure_sums",
    "single_group",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_version": ("__version__",),
        "design": (
            "Design",
            "all_contaminated",
            "bch",
            "cyclic",
            "from_matrix",
            "identity",
            "max_malicious",
            "named_design",
            "read_design",
            "single_group",
        ),
        "engine": ("Client", "ClientEndpoint", "LocalTransport", "TrainedModel", "Transport", "secure_sums"),
        "errors": ("FedGTError", "RunHaltedError"),
        "grouping": ("Grouping", "assign"),
        "privacy": ("Ledger", "minimum_support"),
        "federation": (
            "DecodeSettings",
            "FederationRun",
            "ScreenSettings",
            "SumSettings",
            "Validation",
        ),
        "types": ("ErrorRates", "Outcomes", "Parameters"),
    },
)
