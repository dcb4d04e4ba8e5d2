"""Secure aggregation: the server sees group sums only. Sessions without I/O, after Bonawitz et al. 2017.

A `RoundPlan` says what is summed; `ClientSession` and `ServerSession` turn bytes into bytes through the stages "keys",
"shares" (with `Prekeys`, "begin" stands for both), "masked", "agree" (with identities) and "unmask"; `fedgt.engine` carries
the bytes. See docs/secure-aggregation.md and docs/threat-model.md.
"""

from fedgt.secagg.agreement import Link, quorum
from fedgt.secagg.agreement_log import AgreementLog
from fedgt.secagg.client import ClientSession
from fedgt.secagg.faults import Fault
from fedgt.secagg.fixed_point import FixedPoint, fit_fixed_point, weiszfeld_encoding
from fedgt.secagg.group_sum import Authorise, GroupSum
from fedgt.secagg.identity import Credentials, Identity, Registry
from fedgt.secagg.keyfiles import add_to_registry, read_private_key, read_registry, write_private_key
from fedgt.secagg.plan import RoundPlan, TensorSpec, default_threshold, tensor_specs
from fedgt.secagg.policy import ClientPolicy, read_policy
from fedgt.secagg.prekeys import PrekeyRequest, Prekeys
from fedgt.secagg.server import ServerSession
from fedgt.secagg.terms import RunTerms
from fedgt.secagg.terms_file import read_terms, sign_terms, terms_in, terms_signers, write_terms

__all__ = [
    "AgreementLog",
    "Authorise",
    "ClientPolicy",
    "ClientSession",
    "Credentials",
    "Fault",
    "FixedPoint",
    "GroupSum",
    "Identity",
    "Link",
    "PrekeyRequest",
    "Prekeys",
    "Registry",
    "RoundPlan",
    "RunTerms",
    "ServerSession",
    "TensorSpec",
    "add_to_registry",
    "default_threshold",
    "fit_fixed_point",
    "quorum",
    "read_policy",
    "read_private_key",
    "read_registry",
    "read_terms",
    "sign_terms",
    "tensor_specs",
    "terms_in",
    "terms_signers",
    "weiszfeld_encoding",
    "write_private_key",
    "write_terms",
]
