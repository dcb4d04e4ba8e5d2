"""CPU time and memory of the exact decoder, against a plain textbook loop over all 2^m states run side by side.

python benchmarks/decoder.py            # prints the tables
python benchmarks/decoder.py --plot     # also writes docs/results/decoder_growth.svg and .csv
"""

import csv
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedgt.decode import CountPrior, ExactDecoder, IndependentPrior, calibrate
from fedgt.decode.compiled import _schedule, all_outcomes
from fedgt.design import Design, from_matrix, named_design
from fedgt.privacy import minimum_support
from fedgt.types import ErrorRates, FloatArray

RATES = ErrorRates.symmetric(0.05)
RESULTS = Path(__file__).parent.parent / "docs" / "results"


def textbook(design: Design, outcomes: np.ndarray[tuple[int, ...], np.dtype[np.int8]], prevalence: float) -> FloatArray:
    """The named baseline: forward-backward with probabilities over all 2^m states, one outcome, a scatter per client."""
    n, m = design.clients, design.groups
    states = np.arange(1 << m)
    bits = (states[:, None] >> np.arange(m)) & 1
    right = np.where(bits == 1, 1 - RATES.misdetection, 1 - RATES.false_alarm)
    backward = np.where(bits == outcomes, right, 1 - right).prod(axis=1)
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


def seconds(call: Callable[[], object], repeats: int = 7) -> float:
    """Median CPU time."""
    call()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return float(np.median(times))


def peak_megabytes(call: Callable[[], object]) -> float:
    """Largest memory that numpy and Python held during the call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return peak


def compiled(design: Design, prior: IndependentPrior | CountPrior | None = None) -> ExactDecoder:
    """A decoder whose schedule is laid out anew."""
    _schedule.cache_clear()
    return ExactDecoder(design, RATES, prior or IndependentPrior.uniform(design.clients, 0.2))


def banded(clients: int, groups: int, size: int) -> Design:
    """Groups of neighbours, the clients renamed at random: the order has to be found."""
    matrix = np.zeros((groups, clients), dtype=np.uint8)
    starts = np.linspace(0, clients - size, groups).round().astype(int)
    for group, start in enumerate(starts):
        matrix[group, start : start + size] = 1
    return from_matrix(matrix[:, np.random.default_rng(0).permutation(clients)], name=f"banded-{clients}x{groups}")


def main() -> None:
    """Print the tables."""
    rng = np.random.default_rng(1)
    dense = from_matrix((rng.random((20, 50)) < 0.5).astype(int), name="dense-50x20")
    print("| design | width | compile ms | one outcome ms | batch us each | textbook loop ms | ratio batch | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for design, rows in (
        (named_design("bch-15x8"), 4096),
        (named_design("cyclic-30x12"), 1024),
        (named_design("bch-31x10"), 1024),
        (dense, 1),
        (banded(1000, 500, 18), 4),
    ):
        outcomes = rng.integers(0, 2, (rows, design.groups)).astype(np.int8)
        if design.clients == 1000:  # outcomes that a few attackers cause, as in a real round
            attackers = rng.random((rows, design.clients)) < 0.02
            outcomes = (attackers.astype(int) @ design.matrix.T.astype(int) > 0).astype(np.int8)
        setup = seconds(lambda d=design: compiled(d), 3)  # type: ignore[misc]
        decoder = compiled(design)
        one = seconds(lambda d=decoder, o=outcomes: d.decode_batch(o[:1]), 5)  # type: ignore[misc]
        many = seconds(lambda d=decoder, o=outcomes: d.decode_batch(o), 3) / rows  # type: ignore[misc]
        slow = seconds(lambda d=design, o=outcomes: textbook(d, o[0], 0.2), 5) if design.groups <= 12 else float("nan")  # type: ignore[misc]
        peak = peak_megabytes(lambda d=decoder, o=outcomes: d.decode_batch(o[:1]))  # type: ignore[misc]
        print(
            f"| {design.name} | {decoder.width} | {1e3 * setup:.1f} | {1e3 * one:.2f} | {1e6 * many:.2f} "
            f"| {1e3 * slow:.2f} | {slow / many:.0f} | {peak:.1f} |"
        )
    print("\n| other exact quantity | CPU ms |\n|---|---|")
    small, large = named_design("bch-15x8"), named_design("cyclic-30x12")
    decoder = compiled(large, CountPrior.uniform(8))
    batch = all_outcomes(12)[::8]
    print(
        f"| 30x12 with a count prior up to 8, in batch | {1e3 * seconds(lambda: decoder.decode_batch(batch), 3) / 512:.3f} |"
    )
    for label, rows_of in (("15x8", small), ("30x12", large)):
        stack = np.vstack([rows_of.matrix, np.ones(rows_of.clients)])
        print(f"| r of {label} and the sum over all | {1e3 * seconds(lambda s=stack: minimum_support(s)):.1f} |")  # type: ignore[misc]
    for design, most in ((small, 5), (large, 8)):
        from fedgt.decode.calibrate import _calibrate
        from fedgt.decode.exact import _counts

        def all_thresholds(design: Design = design, most: int = most) -> None:
            _calibrate.cache_clear()
            _counts.cache_clear()
            for malicious in range(1, most + 1):
                calibrate(design, RATES, malicious)

        print(f"| Delta of {design.name} for all n_m up to {most} | {1e3 * seconds(all_thresholds, 3):.1f} |")
    if "--plot" in sys.argv:
        plot_growth()


def plot_growth() -> None:
    """Time and memory against m at n = 30 (dense: every group is open) and against n at width 8."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(2)
    rows: list[dict[str, object]] = []
    for groups in range(4, 21, 2):
        design = from_matrix((rng.random((groups, 30)) < 0.5).astype(int) | np.eye(groups, 30, dtype=int))
        rows.append(_grown("groups at 30 dense clients", groups, design))
    for clients in (32, 64, 128, 256, 512, 1024):
        rows.append(_grown("clients at width 8", clients, banded(clients, (clients - 16) // 2 + 1, 16)))
    with (RESULTS / "decoder_growth.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for column, (series, label) in enumerate(
        (("groups at 30 dense clients", "groups m"), ("clients at width 8", "clients n"))
    ):
        points = [row for row in rows if row["series"] == series]
        x = [int(str(row["size"])) for row in points]
        for line, (name, unit) in enumerate(
            (("decode_seconds", "CPU seconds an outcome"), ("peak_megabytes", "peak MB"))
        ):
            axis = axes[line, column]
            axis.plot(x, [float(str(row[name])) for row in points], marker="o", color="#0072B2")
            axis.set(xlabel=label, ylabel=unit, yscale="log", xscale="log" if column else "linear")
            axis.grid(visible=True, alpha=0.3)
        axes[0, column].set_title(series)
    figure.savefig(RESULTS / "decoder_growth.svg", metadata={"Date": None})


def _grown(series: str, size: int, design: Design) -> dict[str, object]:
    decoder = compiled(design)
    outcomes = (np.arange(design.groups) % 5 == 0).astype(np.int8)[None]
    return {
        "series": series,
        "size": size,
        "width": decoder.width,
        "compile_seconds": f"{seconds(lambda: compiled(design), 3):.5f}",
        "decode_seconds": f"{seconds(lambda: decoder.decode_batch(outcomes), 3):.6f}",
        "peak_megabytes": f"{peak_megabytes(lambda: decoder.decode_batch(outcomes)):.3f}",
    }


if __name__ == "__main__":
    main()
