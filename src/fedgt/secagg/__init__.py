"""Secure aggregation: the server sees group sums only. Sessions without I/O, after Bonawitz et al. 2017.

A `RoundPlan` says what is summed; `ClientSession` and `ServerSession` turn bytes into bytes through the stages "keys",
"shares", "masked" and "unmask"; `fedgt.engine` carries the bytes. See docs/secure-aggregation.md.
"""

from fedgt.secagg.client import ClientSession
from fedgt.secagg.fixed_point import FixedPoint, fit_fixed_point, weiszfeld_encoding
from fedgt.secagg.plan import RoundPlan, TensorSpec, default_threshold
from fedgt.secagg.server import Authorise, GroupSum, ServerSession

__all__ = [
    "Authorise",
    "ClientSession",
    "FixedPoint",
    "GroupSum",
    "RoundPlan",
    "ServerSession",
    "TensorSpec",
    "default_threshold",
    "fit_fixed_point",
    "weiszfeld_encoding",
]
