"""A federation and its rounds: who takes part, what is asked for, how groups are compared, and who is left out.

`training_round` is one secure sum over everybody who is kept, `screening_round` a test of all groups, `staged_round` the
first that becomes the second on suspicion, `rfa_round` the baseline that names nobody.
"""

from fedgt.federation.findings import Finding, from_outcomes, from_posterior
from fedgt.federation.participants import Federation, Validation
from fedgt.federation.rfa import rfa_round
from fedgt.federation.round import ScreeningRound, screening_round, training_round
from fedgt.federation.run import FederationRun
from fedgt.federation.settings import (
    AfterTest,
    DecodeSettings,
    Features,
    OnSuspicious,
    OnUndecidable,
    OnUndecided,
    OnUntested,
    RfaSettings,
    ScreenKind,
    ScreenSettings,
    SumSettings,
    Weighting,
)
from fedgt.federation.staged import staged_round
from fedgt.federation.state import Coming, RunState, Step
from fedgt.federation.sums import AggregateRecord, RoundResult
from fedgt.federation.verdicts import Exclusion, Verdict, exclude
from fedgt.record.verdict_words import VerdictName

__all__ = [
    "AfterTest",
    "AggregateRecord",
    "Coming",
    "DecodeSettings",
    "Exclusion",
    "Features",
    "Federation",
    "FederationRun",
    "Finding",
    "OnSuspicious",
    "OnUndecidable",
    "OnUndecided",
    "OnUntested",
    "RfaSettings",
    "RoundResult",
    "RunState",
    "ScreenKind",
    "ScreenSettings",
    "ScreeningRound",
    "Step",
    "SumSettings",
    "Validation",
    "Verdict",
    "VerdictName",
    "Weighting",
    "exclude",
    "from_outcomes",
    "from_posterior",
    "rfa_round",
    "screening_round",
    "staged_round",
    "training_round",
]
