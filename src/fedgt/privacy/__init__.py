"""What the revealed sums give away: the real minimum support, and the ledger that is asked before a sum is opened."""

from fedgt.privacy.exposure import Exposure, exposure
from fedgt.privacy.ledger import Ledger, PrivacyAccount, Row
from fedgt.privacy.support import Support, minimum_support

__all__ = ["Exposure", "Ledger", "PrivacyAccount", "Row", "Support", "exposure", "minimum_support"]
