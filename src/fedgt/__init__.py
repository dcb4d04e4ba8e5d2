"""Find and remove malicious clients in federated learning without giving up secure aggregation.

The names below are the public interface for a federation of your own; `fedgt.decode.decode` is reached through its module,
whose name it shares. Everything is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedgt._version import __version__

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

_HOMES = {
    "fedgt.design": (
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
    "fedgt.engine": ("Client", "ClientEndpoint", "LocalTransport", "TrainedModel", "Transport", "secure_sums"),
    "fedgt.errors": ("FedGTError", "RunHaltedError"),
    "fedgt.grouping": ("Grouping", "assign"),
    "fedgt.privacy": ("Ledger", "minimum_support"),
    "fedgt.federation": (
        "DecodeSettings",
        "FederationRun",
        "ScreenSettings",
        "SumSettings",
        "Validation",
    ),
    "fedgt.types": ("ErrorRates", "Outcomes", "Parameters"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'fedgt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
