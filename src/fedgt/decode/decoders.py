"""Which decoder: the exact one, or belief propagation by name or where the exact one does not fit into memory."""

from fedgt.decode.belief import BeliefPropagation
from fedgt.decode.compiled import (
    METHODS,
    CompiledDecoder,
    ExactDecoder,
    Method,
    Rates,
)
from fedgt.decode.priors import Prior
from fedgt.defaults import METHOD
from fedgt.design import Design
from fedgt.errors import DesignError, SpecError


def compile(design: Design, rates: Rates, prior: Prior, *, method: Method = METHOD) -> CompiledDecoder:
    """Prepare a decoder.

    Args:
        design: m groups of n clients; for outcomes of several rounds, stack the designs (`stacked`).
        rates: Q(t_i | s_i), for all groups or one for each.
        prior: What is believed about the clients before the tests.
        method: `exact`; `belief-propagation`; `auto` (exact, or belief propagation where that would not fit into memory:
            the decoder's `method` and every answer's status say which).

    Raises:
        SpecError: If the method is unknown.
        ShapeError: If rates or prior do not fit the design.
        DesignError: If an exact decoder does not fit into memory.

    Examples:
        >>> from fedgt import ErrorRates, Outcomes, named_design
        >>> from fedgt.decode import CountPrior, compile
        >>> decoder = compile(named_design("bch-15x8"), ErrorRates.symmetric(0.05), CountPrior.uniform(5))
        >>> posterior = decoder.decode(Outcomes.parse("1101?000"))
        >>> round(float(posterior.log_odds[4]), 3)  # below 0: more likely malicious than not
        -1.371
    """
    if method not in METHODS:
        raise SpecError(f"unknown decoding method {method!r}; known are {', '.join(METHODS)}")
    if method == "belief-propagation":
        return BeliefPropagation(design, rates, prior)
    try:
        return ExactDecoder(design, rates, prior)
    except DesignError:
        if method == "exact":
            raise
        return BeliefPropagation(design, rates, prior)
