"""What the revealed sums give away: the real minimum support, and the ledger that is asked before a sum is opened."""

from fedgt.privacy.exposure import Exposure, exposure
from fedgt.privacy.kept_sum import KeptSum, largest_kept_sum
from fedgt.privacy.ledger import Ledger, PrivacyAccount, Row
from fedgt.privacy.span import SpanMean, best_in_span
from fedgt.privacy.support import Support, minimum_support

__all__ = [
    "Exposure",
    "KeptSum",
    "Ledger",
    "PrivacyAccount",
    "Row",
    "SpanMean",
    "Support",
    "best_in_span",
    "exposure",
    "largest_kept_sum",
    "minimum_support",
]
