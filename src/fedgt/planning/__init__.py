"""From demands to a plan: which designs keep them, what each gets wrong and costs, and one recommendation.

`search` returns the Pareto set for `Demands`; `expected` and `communication` judge any design; a `Plan` is what a consortium
signs. `ties`, `margin` and `search_graded` are about graded evidence.
"""

from fedgt.planning.communication import Communication, communication
from fedgt.planning.default import SPARE, default_design, design_for_absences
from fedgt.planning.demands import Demands, Evidence, require_possible
from fedgt.planning.evaluation import Evaluation, Figures
from fedgt.planning.expected import ExpectedErrors, expected, least_wrong
from fedgt.planning.graded_search import GradedDesign, certify, search_graded
from fedgt.planning.margin import Margin, draw_trials, margin, wrong_under_noise
from fedgt.planning.named_shift import smallest_named_shift
from fedgt.planning.nested_groups import nested_groups
from fedgt.planning.picture import draw_frontier, draw_tradeoff
from fedgt.planning.plan_file import Plan, make_plan, plan_schema, read_plan, write_plan
from fedgt.planning.power import Power, detection_power
from fedgt.planning.rows_frontier import FrontierRow, frontier
from fedgt.planning.search import RULES, SearchResult, search
from fedgt.planning.ties import Ties, ties
from fedgt.planning.with_coefficients import design_with_coefficients

__all__ = [
    "RULES",
    "SPARE",
    "Communication",
    "Demands",
    "Evaluation",
    "Evidence",
    "ExpectedErrors",
    "Figures",
    "FrontierRow",
    "GradedDesign",
    "Margin",
    "Plan",
    "Power",
    "SearchResult",
    "Ties",
    "certify",
    "communication",
    "default_design",
    "design_for_absences",
    "design_with_coefficients",
    "detection_power",
    "draw_frontier",
    "draw_tradeoff",
    "draw_trials",
    "expected",
    "frontier",
    "least_wrong",
    "make_plan",
    "margin",
    "nested_groups",
    "plan_schema",
    "read_plan",
    "require_possible",
    "search",
    "search_graded",
    "smallest_named_shift",
    "ties",
    "write_plan",
    "wrong_under_noise",
]
