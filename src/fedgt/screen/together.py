"""Evidence of several test rounds in which outputs were compared: one line through the contrasts of all of them.

An attack moves the outputs of a network in the same direction in every round, and what honest clients of one population
differ by is drawn anew. So the contrasts of all rounds are treated as those of one test with more groups: theta is common, a
set moves all of them, and a line of honest clients in one round is none in the others. To look for a line in each round and
to add the evidence up would forget that it is the same.
"""

from collections.abc import Sequence

import numpy as np

from fedgt.errors import ShapeError
from fedgt.screen.damage import Damage
from fedgt.screen.graded_evidence import GradedEvidence, MixedEvidence, Rows
from fedgt.screen.shift_evidence import shift_evidence
from fedgt.types import LayeredEvidence

TOGETHER = 0.4
"""Power to which the likelihood of several rounds together is raised: less than that of one (`TEMPER`), as there are more
contrasts than independent features, and a part of what honest clients differ by comes again (decision 0016)."""


def together(tests: Sequence[LayeredEvidence]) -> list[LayeredEvidence]:
    """Evidence of the test rounds of the same clients, ready to be added up.

    Where outputs were compared, in two rounds or more and on the same classes, they become one evidence; the rest stays.
    """
    kinds: dict[tuple[int, ...], list[GradedEvidence]] = {}
    found: list[LayeredEvidence] = []
    for one in tests:
        if isinstance(one, GradedEvidence) and one.observed is not None:
            kinds.setdefault((one.observed.shape[1], *one.damage.classes.tolist()), []).append(one)
        else:
            found.append(one)
    return found + [_stacked(same) if len(same) > 1 else same[0] for same in kinds.values()]


def _stacked(tests: Sequence[GradedEvidence]) -> GradedEvidence:
    observed = np.concatenate([one.observed for one in tests if one.observed is not None])
    shifts = np.concatenate([one.damage.shifts for one in tests])
    gram, features = observed @ observed.T, observed.shape[1]
    # D is what each round has learnt from how unequal its own contrasts are.
    degrees = float(np.exp(np.mean([np.log(one.strongest.shift.effective_features) for one in tests])))
    line = shift_evidence(gram, shifts, features=features, effective_features=degrees, power=TOGETHER)
    if line is None:
        raise ShapeError("test rounds without any difference between groups have no evidence to put together")
    rows = Rows(
        labels=(),
        log_prior=0.0,
        gram=gram,
        features=features,
        shift=line,
        effective_features=degrees,
        power=TOGETHER,
    )
    losses = np.concatenate([one.damage.by_class for one in tests])
    return GradedEvidence(
        hypotheses=(rows,),
        mixture=MixedEvidence(rows=(rows,)),
        damage=Damage(shifts=shifts, by_class=losses, classes=tests[0].damage.classes),
    )
