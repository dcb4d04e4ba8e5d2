"""What the group sums say: by how much, and along which line, groups differ, with what harm, and which clients explain it.

Pure functions on arrays. `graded_screen` compares the groups by features, `by_margins` by validation margins, and
`decode_graded` makes a posterior over whole sets of clients of either.
"""

from fedgt.evidence.acquittal import FaultEvidence, acquitted
from fedgt.evidence.apart import ApartEvidence
from fedgt.evidence.by_margins.compare_margins import margin_screen
from fedgt.evidence.by_margins.honest_account import HonestAccount, class_products
from fedgt.evidence.by_margins.hypotheses import FEWEST_CLASSES, Hypothesis, class_steps
from fedgt.evidence.by_margins.margin_evidence import MarginEvidence
from fedgt.evidence.by_margins.second_opinion import MarginTest, SecondOpinion
from fedgt.evidence.by_margins.spread import OwnedClasses, label_spread
from fedgt.evidence.compare import GradedScreen, graded_screen, left_out, too_few
from fedgt.evidence.contrast import Contrasts, contrasts
from fedgt.evidence.decide import SOMEBODY, decode_graded
from fedgt.evidence.decoding import GradedDecoding
from fedgt.evidence.harm import Damage, LabelFinding, damage, label_under_attack
from fedgt.evidence.line import ShiftEvidence
from fedgt.evidence.line_likelihood import FewFeatures, ShiftLikelihood
from fedgt.evidence.push import Push
from fedgt.evidence.scores import checked_scores, class_losses, margins, outputs
from fedgt.evidence.sets import SetPosterior, decode_sets, largest_scored, sparse_prior
from fedgt.evidence.several_tests import together
from fedgt.evidence.significance import SIGNIFICANT, evidence_of_difference
from fedgt.evidence.usable import UsableScores, unscored, usable_scores
from fedgt.evidence.weights import GradedEvidence, MixedEvidence, Rows

STORED: tuple[type, ...] = (
    GradedEvidence,
    MarginEvidence,
    Rows,
    MixedEvidence,
    ShiftEvidence,
    ShiftLikelihood,
    FewFeatures,
    Damage,
    Hypothesis,
    SecondOpinion,
    MarginTest,
    HonestAccount,
    OwnedClasses,
    Push,
)
"""What evidence is made of, for `fedgt.packed`: a run that goes on has it from the tests before."""

__all__ = [
    "FEWEST_CLASSES",
    "SIGNIFICANT",
    "SOMEBODY",
    "STORED",
    "ApartEvidence",
    "Contrasts",
    "Damage",
    "FaultEvidence",
    "GradedDecoding",
    "GradedEvidence",
    "GradedScreen",
    "HonestAccount",
    "Hypothesis",
    "LabelFinding",
    "MarginEvidence",
    "Push",
    "SecondOpinion",
    "SetPosterior",
    "UsableScores",
    "acquitted",
    "checked_scores",
    "class_losses",
    "class_products",
    "class_steps",
    "contrasts",
    "damage",
    "decode_graded",
    "decode_sets",
    "evidence_of_difference",
    "graded_screen",
    "label_spread",
    "label_under_attack",
    "largest_scored",
    "left_out",
    "margin_screen",
    "margins",
    "outputs",
    "sparse_prior",
    "together",
    "too_few",
    "unscored",
    "usable_scores",
]
