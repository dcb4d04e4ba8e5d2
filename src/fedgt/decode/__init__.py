"""From test outcomes to a posterior per client, and from posteriors to accusations."""

from fedgt.decode.calibrate import Calibration, calibrate
from fedgt.decode.estimate import CountEstimate, estimate_malicious
from fedgt.decode.exact import all_log_odds, expected_errors
from fedgt.decode.priors import CountPrior, IndependentPrior, Prior
from fedgt.decode.strategies import STRATEGIES, UNDECIDABLE, Decoding, Strategy, decode, without_evidence
from fedgt.decode.trellis import Posterior, forward_backward

__all__ = [
    "STRATEGIES",
    "UNDECIDABLE",
    "Calibration",
    "CountEstimate",
    "CountPrior",
    "Decoding",
    "IndependentPrior",
    "Posterior",
    "Prior",
    "Strategy",
    "all_log_odds",
    "calibrate",
    "decode",
    "estimate_malicious",
    "expected_errors",
    "forward_backward",
    "without_evidence",
]
