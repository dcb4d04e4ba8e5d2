"""How many clients are malicious? Maximum likelihood from the number of negative groups, or from all outcomes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgt.decode.compiled import Method, Rates
from fedgt.decode.decoders import compile
from fedgt.decode.priors import CountPrior
from fedgt.defaults import KAPPA, METHOD
from fedgt.design import Design, max_malicious, negative_group_distribution
from fedgt.errors import CalibrationError, ShapeError
from fedgt.types import IntArray, Outcomes, as_count


@dataclass(frozen=True, slots=True, kw_only=True)
class CountEstimate:
    """The estimated number of malicious clients.

    Attributes:
        malicious: n_m-hat; None when the strategy needs none.
        largest: n_m^max, the largest number that was considered.
        possible: Whether any number up to `largest` can give the observed number of negative groups without test errors.
        raised: Whether n_m^max was 0 by kappa, so that `largest` is 1 instead.

    Examples:
        >>> from fedgt import Outcomes, named_design
        >>> from fedgt.decode import estimate_malicious
        >>> found = estimate_malicious(named_design("bch-15x8"), Outcomes.parse("11111111"))
        >>> found.malicious, found.largest, found.possible
        (5, 5, True)
    """

    malicious: int | None
    largest: int
    possible: bool
    raised: bool = False


def most_considered(design: Design, kappa: float) -> int:
    """n_m^max, but 1 where it is 0: whoever considers no attacker finds everybody innocent for certain.

    Raises:
        DesignError: As `fedgt.design.max_malicious`.

    Examples:
        >>> from fedgt import named_design
        >>> from fedgt.decode import most_considered
        >>> most_considered(named_design("bch-15x8"), 0.2)
        5
    """
    return max(1, max_malicious(design, kappa))


def count_prior(design: Design, outcomes: Outcomes, *, kappa: float, largest: int | None) -> CountPrior:
    """What `bayes` starts from: every number of malicious clients up to n_m^max is as likely as another.

    Args:
        design: m groups of n clients.
        outcomes: Erased groups are left out for n_m^max; one at least is not.
        kappa: Defines n_m^max.
        largest: n_m^max itself, where it is known.

    Examples:
        >>> from fedgt import Outcomes, named_design
        >>> from fedgt.decode import count_prior
        >>> len(count_prior(named_design("bch-15x8"), Outcomes.parse("11010000"), kappa=0.2, largest=None).weights)
        6
    """
    if largest is not None:
        return CountPrior.uniform(largest)
    return CountPrior.uniform(most_considered(design.restricted(np.flatnonzero(outcomes.present).tolist()), kappa))


def estimate_malicious(
    design: Design, outcomes: Outcomes, *, kappa: float = KAPPA, largest: int | None = None
) -> CountEstimate:
    """n_m-hat = argmax over n_m <= n_m^max of P(Z = z-hat | n_m) (equation (z_cond_nm) of the paper).

    Erased groups are left out of the design, for the likelihood and for n_m^max. One attacker is considered at least, unless
    the user says otherwise. Of equally likely numbers the smallest is
    taken. When no number can give z-hat negative groups, the number whose expected Z is nearest to z-hat is taken (the
    smallest of equally near ones) and `possible` is False.

    Args:
        design: At most 22 groups with an outcome.
        outcomes: One per group.
        kappa: The probability constraint that defines n_m^max (equation (prop_hist) of the paper).
        largest: n_m^max, when the user gives it instead of kappa.

    Raises:
        ShapeError: If the outcomes do not fit the design.
        CalibrationError: If every outcome is erased, or `largest` is not between 0 and the number of clients.

    Examples:
        >>> from fedgt import Outcomes, named_design
        >>> from fedgt.decode import estimate_malicious
        >>> estimate_malicious(named_design("bch-15x8"), Outcomes.parse("11010000")).malicious
        1
    """
    if len(outcomes.values) != design.groups:
        raise ShapeError(f"{len(outcomes.values)} outcomes for a design with {design.groups} groups")
    present = np.flatnonzero(outcomes.present).tolist()
    if not present:
        raise CalibrationError("every outcome is erased: nothing can be estimated")
    tested = design.restricted(present)
    raised = False
    if largest is None:
        allowed = max_malicious(tested, kappa)
        largest, raised = max(1, allowed), allowed < 1
    elif not 0 <= as_count(largest, "largest", error=CalibrationError) <= design.clients:
        raise CalibrationError(f"largest = {str(largest)[:20]} malicious clients; 0 to {design.clients} is needed")
    table = negative_group_distribution(tested)[: largest + 1]
    likelihood = table[:, outcomes.negatives]
    if likelihood.max() > 0:
        # Likelihoods that differ by rounding only count as equal, so that the smallest number wins on every machine.
        best = int(np.flatnonzero(likelihood >= likelihood.max() * (1 - 1e-12))[0])
        return CountEstimate(malicious=best, largest=largest, possible=True, raised=raised)
    distance = np.abs(table @ np.arange(table.shape[1]) - outcomes.negatives)
    nearest = int(np.flatnonzero(distance <= distance.min() + 1e-12)[0])
    return CountEstimate(malicious=nearest, largest=largest, possible=False, raised=raised)


def estimate_from_outcomes(
    design: Design,
    outcomes: npt.NDArray[np.int8],
    rates: Rates,
    *,
    kappa: float = KAPPA,
    largest: int | None = None,
    method: Method = METHOD,
) -> IntArray:
    """int64[B]: argmax over n_m <= n_m^max of P(t | n_m), from which groups are negative and not only how many.

    It also uses the error rates. Of equally likely numbers the smallest is taken; -1 where the outcomes are impossible.

    Args:
        design: m groups of n clients.
        outcomes: int8[B, groups].
        rates: Q(t_i | s_i).
        kappa: Defines n_m^max.
        largest: n_m^max itself.
        method: Of the decoder.

    Examples:
        >>> import numpy as np
        >>> from fedgt import ErrorRates, named_design
        >>> from fedgt.decode import estimate_from_outcomes
        >>> outcomes = np.array([[1, 1, 0, 1, 0, 0, 0, 0]], dtype=np.int8)
        >>> estimate_from_outcomes(named_design("bch-15x8"), outcomes, ErrorRates.symmetric(0.05)).tolist()
        [1]
    """
    most = most_considered(design, kappa) if largest is None else largest
    batch = compile(design, rates, CountPrior.uniform(most), method=method).decode_batch(outcomes)
    # The prior is flat, so the posterior of the number is its likelihood.
    count = np.nan_to_num(batch.count, nan=0.0)
    peak = count.max(axis=1, keepdims=True, initial=0.0)
    best = np.argmax(count >= peak * (1 - 1e-12), axis=1)
    return np.where(np.isfinite(batch.log_evidence), best, -1)
