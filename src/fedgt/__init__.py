"""Find and remove malicious clients in federated learning without giving up secure aggregation."""

from fedgt._version import __version__

__all__ = ["__version__"]
