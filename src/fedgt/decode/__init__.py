"""From test outcomes to a posterior per client, and from posteriors to accusations."""

from fedgt.decode.baselines import combinatorial, definite
from fedgt.decode.belief import BeliefPropagation
from fedgt.decode.calibrate import Calibration, calibrate, calibrate_by_sampling
from fedgt.decode.compiled import (
    METHODS,
    CompiledDecoder,
    ExactDecoder,
    Method,
    Posterior,
    PosteriorBatch,
    forward_backward,
    stacked,
)
from fedgt.decode.decision_tables import decision_table
from fedgt.decode.decoders import compile
from fedgt.decode.estimate import (
    CountEstimate,
    count_prior,
    estimate_from_outcomes,
    estimate_malicious,
    most_considered,
)
from fedgt.decode.exact import all_log_odds, expected_errors
from fedgt.decode.explanation import explain
from fedgt.decode.priors import CountPrior, IndependentPrior, Prior
from fedgt.decode.ranked import RankedSet, ranked_sets
from fedgt.decode.strategies import UNDECIDABLE, Decoding, decode, without_evidence
from fedgt.decode.strategy_names import ESTIMATORS, STRATEGIES, Estimator, Strategy

__all__ = [
    "ESTIMATORS",
    "METHODS",
    "STRATEGIES",
    "UNDECIDABLE",
    "BeliefPropagation",
    "Calibration",
    "CompiledDecoder",
    "CountEstimate",
    "CountPrior",
    "Decoding",
    "Estimator",
    "ExactDecoder",
    "IndependentPrior",
    "Method",
    "Posterior",
    "PosteriorBatch",
    "Prior",
    "RankedSet",
    "Strategy",
    "all_log_odds",
    "calibrate",
    "calibrate_by_sampling",
    "combinatorial",
    "compile",
    "count_prior",
    "decision_table",
    "decode",
    "definite",
    "estimate_from_outcomes",
    "estimate_malicious",
    "expected_errors",
    "explain",
    "forward_backward",
    "most_considered",
    "ranked_sets",
    "stacked",
    "without_evidence",
]
