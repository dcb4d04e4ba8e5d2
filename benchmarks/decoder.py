"""CPU time and memory of one decoded outcome, against a plain textbook loop over states run side by side.

python benchmarks/decoder.py
"""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from fedgt.decode import IndependentPrior, calibrate, forward_backward
from fedgt.design import Design, named_design
from fedgt.privacy import minimum_support
from fedgt.types import ErrorRates, FloatArray, Outcomes

RATES = ErrorRates.symmetric(0.05)


def textbook(design: Design, outcomes: Outcomes, prevalence: float) -> FloatArray:
    """The named baseline: forward-backward with probabilities and a scatter per client, O(n 2^m) numpy."""
    n, m = design.clients, design.groups
    states = np.arange(1 << m)
    bits = (states[:, None] >> np.arange(m)) & 1
    right = np.where(bits == 1, 1 - RATES.misdetection, 1 - RATES.false_alarm)
    backward = np.where(bits == outcomes.values, right, 1 - right).prod(axis=1)
    masks = design.columns_as_masks()
    forward = np.zeros((n + 1, 1 << m))
    forward[0, 0] = 1
    for j in range(n):
        forward[j + 1] = (1 - prevalence) * forward[j]
        np.add.at(forward[j + 1], states | masks[j], prevalence * forward[j])
    log_odds = np.empty(n)
    for j in range(n - 1, -1, -1):
        moved = backward[states | masks[j]]
        log_odds[j] = np.log((1 - prevalence) * (forward[j] @ backward)) - np.log(prevalence * (forward[j] @ moved))
        backward = (1 - prevalence) * backward + prevalence * moved
    return log_odds


def milliseconds(call: Callable[[], object], repeats: int = 15) -> float:
    """Median CPU time."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1e3 * float(np.median(times))


def main() -> None:
    """Print the table."""
    print("| design | textbook loop ms | fedgt ms | ratio | fedgt peak MB | largest difference |")
    print("|---|---|---|---|---|---|")
    for name in ("bch-15x8", "bch-31x10", "cyclic-30x12"):
        design = named_design(name)
        outcomes = Outcomes(values=(np.arange(design.groups) % 2).astype(np.int8))
        prior = IndependentPrior.uniform(design.clients, 0.2)
        ours = forward_backward(design, outcomes, RATES, prior).log_odds
        difference = np.abs(ours - textbook(design, outcomes, 0.2)).max()
        slow = milliseconds(lambda d=design, o=outcomes: textbook(d, o, 0.2))  # type: ignore[misc]
        fast = milliseconds(lambda d=design, o=outcomes, p=prior: forward_backward(d, o, RATES, p))  # type: ignore[misc]
        tracemalloc.start()
        forward_backward(design, outcomes, RATES, prior)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        print(f"| {name} | {slow:.2f} | {fast:.2f} | {slow / fast:.2f} | {peak:.2f} | {difference:.1e} |")
    print("\n| exact quantity | CPU ms |\n|---|---|")
    small, large = named_design("bch-15x8"), named_design("cyclic-30x12")
    for label, call in (
        ("r of 15x8 and the sum over all", lambda: minimum_support(np.vstack([small.matrix, np.ones(15)]))),
        ("r of 30x12 and the sum over all", lambda: minimum_support(np.vstack([large.matrix, np.ones(30)]))),
    ):
        print(f"| {label} | {milliseconds(call):.1f} |")
    for design, most in ((small, 5), (large, 8)):
        from fedgt.decode.calibrate import _calibrate
        from fedgt.decode.exact import _counts

        def all_thresholds(design: Design = design, most: int = most) -> None:
            _calibrate.cache_clear()
            _counts.cache_clear()
            for malicious in range(1, most + 1):
                calibrate(design, RATES, malicious)

        print(f"| Delta of {design.name} for all n_m up to {most} | {milliseconds(all_thresholds, 5):.1f} |")


if __name__ == "__main__":
    main()
