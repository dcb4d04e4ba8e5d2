"""What the revealed sums give away: the real minimum support, and the ledger that is asked before a sum is opened."""

from fedgt.privacy.colluders import ExposingColluders, exposing_colluders
from fedgt.privacy.disclosed_share import DisclosedShare, disclosed_share
from fedgt.privacy.exposure import Exposure, exposure
from fedgt.privacy.kept_sum import KeptSum, largest_kept_sum
from fedgt.privacy.ledger import Ledger, Row
from fedgt.privacy.span import SpanMean, best_in_span
from fedgt.privacy.stated import PrivacyAccount
from fedgt.privacy.support import Support, minimum_support

__all__ = [
    "DisclosedShare",
    "ExposingColluders",
    "Exposure",
    "KeptSum",
    "Ledger",
    "PrivacyAccount",
    "Row",
    "SpanMean",
    "Support",
    "best_in_span",
    "disclosed_share",
    "exposing_colluders",
    "exposure",
    "largest_kept_sum",
    "minimum_support",
]
