"""The names of strategies and estimators, and what each starts from."""

from typing import Literal, get_args

from fedgt.decode.priors import CountPrior, IndependentPrior, Prior
from fedgt.errors import SpecError
from fedgt.types import as_number

Strategy = Literal["count", "delta", "bayes", "map", "comp", "dd", "published-count", "published-delta"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Estimator = Literal["negatives", "outcomes"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


def check_names(strategy: str, estimator: str, beta: float) -> None:
    """Refuse a name that is unknown, and a weight that is none.

    Raises:
        SpecError: With the names that are known.
    """
    for name, known in ((strategy, STRATEGIES), (estimator, ESTIMATORS)):
        if name not in known:
            kind = "strategy" if known is STRATEGIES else "estimator"
            raise SpecError(f"unknown {kind} {name!r}; known are {', '.join(known)}")
    if not 0.0 <= as_number(beta, "beta") <= 1.0:
        raise SpecError(f"beta = {beta}; a weight from 0 to 1 is needed")


def prior_of(
    strategy: Strategy, given: IndependentPrior | None, count: int | None, clients: int, largest: int
) -> Prior | None:
    """What the decoder starts from; None when the estimate is 0 and nothing else is known."""
    if given is not None:
        return given
    if strategy in ("bayes", "map"):
        return CountPrior.uniform(largest)
    return IndependentPrior.uniform(clients, count / clients) if count else None
