"""What a test in every round finds: attackers that wake later, on MNIST and on the embedded digits, 15 clients.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/standing.py [part] [seeds] [first seed]

Parts: `iid`, `dirichlet` and `digits` (1, 3 and 5 that wake in round 2, 5 or 9 of 10), `nobody` (30 rounds), `knowing`
(attackers who know the schedule), and `noise` (of the model after exclusions; needs no data). Runs of one seed are paired:
the same data, attackers and order of samples for both schedules, and for an oracle that leaves the attackers out from the
start. Rows go to docs/results/standing.csv (resumable). The seeds chose no constant.
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import beta

from fedgt.design import named_design
from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.experiment.batch import run_batch
from fedgt.privacy import best_in_span
from fedgt.record import RunResult
from fedgt.train import ImageData, load

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "standing.csv"
FIRST_SEED: Final = 2000
COLUMNS: Final = (
    "spec_hash", "seed", "case", "method", "data", "partition", "rounds", "malicious_clients", "wakes_in", "named_in",
    "missed_clients", "falsely_excluded_clients", "falsely_in", "lost_rounds", "attack_accuracy_by_round_percent",
    "top1_accuracy_by_round_percent", "sums_of_a_client", "share_mean", "privacy_strict", "privacy_cautious", "status",
    "cpu_seconds",
)  # fmt: skip
METHODS: Final[Mapping[str, Mapping[str, Any]]] = {
    "every-round": {"screen.schedule": "every-round"},
    "first": {},
    "oracle": {"method": "oracle"},
}
DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "iid": {"name": "mnist"},
    "dirichlet": {"name": "mnist", "partition": "dirichlet"},
    "digits": {"name": "digits"},
}

Case = tuple[str, dict[str, Any]]


def sleepers(data: Mapping[str, Any]) -> Iterator[Case]:
    """1, 3 and 5 that wake in round 2, 5 or 9."""
    for wakes in (2, 5, 9):
        for count in (1, 3, 5):
            attack = {"malicious": count, "first_round": wakes}
            yield f"{count} wake in round {wakes}", {"data": data, "attack": attack}


def knowing() -> Iterator[Case]:
    """Attackers who know that there is a test in every round."""
    for count in (1, 5):
        for kind in ("label-flip", "backdoor"):
            attack = {"kind": kind, "malicious": count, "first_round": 9, "boost": 15.0}
            yield f"{count} replace the model in round 9, {kind}", {"attack": attack}
    yield "3 poison a little in every round", {"attack": {"malicious": 3, "boost": 0.3}}
    yield (
        "5 with a backdoor in a tenth of their samples",
        {"attack": {"kind": "backdoor", "malicious": 5, "share": 0.1}},
    )
    turns = [{"malicious": 1, "first_round": one} for one in (3, 4, 5, 6)]
    yield "one at a time, rounds 2 to 6", {"attack": {"malicious": 1, "first_round": 2, "further": turns}}
    naps = [{"malicious": 1, "first_round": one, "last_round": one} for one in (4, 6, 8)]
    yield (
        "one a round, which sleeps again",
        {"attack": {"malicious": 1, "first_round": 2, "last_round": 2, "further": naps}},
    )
    yield "5 from the start", {"attack": {"malicious": 5}}


def cases(part: str) -> list[Case]:
    """Of a part: a name, and the keys of the specification."""
    if part in DATA:
        return [(f"{name}, {part}", content) for name, content in sleepers(DATA[part])]
    if part == "nobody":
        return [(f"nobody, {where}", {"data": data, "federation": {"rounds": 30}}) for where, data in DATA.items()]
    if part == "knowing":
        return [(name, {"data": DATA["iid"], **content}) for name, content in knowing()]
    raise SystemExit(f"no part {part!r}: take {', '.join(DATA)}, nobody, knowing or noise")


def specs_of(content: Mapping[str, Any], seed: int, part: str) -> dict[str, ExperimentSpec]:
    """By method; nobody malicious has no oracle."""
    left_out = {"nobody": ("first", "oracle"), "knowing": ("oracle",)}.get(part, ())
    return {
        method: make_spec({"privacy": 4, "seed": seed, **content}, changes)
        for method, changes in METHODS.items()
        if method not in left_out
    }


def row_of(spec: ExperimentSpec, case: str, method: str, result: RunResult) -> dict[str, Any]:
    """One run."""
    malicious = [client for client in result.clients if client.truth == "malicious"]
    wrong = [client for client in result.clients if client.truth == "benign" and client.excluded]
    uploads = [len(row.members) for row in result.aggregates if row.status == "open"]
    lost = sum("is lost" in warning for warning in result.warnings)

    def percents(values: Sequence[float | None]) -> str:
        return " ".join("-" if one is None else f"{100 * one:.2f}" for one in values)

    def rounds(clients: Sequence[Any]) -> str:
        return " ".join(str(client.decided_in) if client.excluded else "-" for client in clients)

    return {
        "spec_hash": spec.digest,
        "seed": spec.seed,
        "case": case,
        "method": method,
        "data": spec.data.name,
        "partition": spec.data.partition,
        "rounds": len(result.rounds),
        "malicious_clients": len(malicious),
        "wakes_in": spec.attack.first_round,
        "named_in": rounds(malicious),
        "missed_clients": result.missed,
        "falsely_excluded_clients": result.falsely_excluded,
        "falsely_in": rounds(wrong),
        "lost_rounds": lost,
        "attack_accuracy_by_round_percent": percents([row.attack_accuracy for row in result.rounds]),
        "top1_accuracy_by_round_percent": percents([row.top1_accuracy for row in result.rounds]),
        "sums_of_a_client": f"{sum(uploads) / len(result.clients) / max(1, len(result.rounds)):.2f}",
        "share_mean": "" if result.privacy.share_mean is None else f"{result.privacy.share_mean:.3f}",
        "privacy_strict": result.privacy.strict,
        "privacy_cautious": result.privacy.cautious,
        "status": result.status,
        "cpu_seconds": f"{result.cpu_seconds:.1f}",
    }


def rows(part: str, seeds: range) -> list[dict[str, Any]]:
    """All rows of a part; what is not there is run, one seed at a time."""
    known = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {row["spec_hash"]: row for row in csv.DictReader(file)}
    loaded: dict[str, ImageData] = {}
    found = []
    for seed in seeds:
        wanted = []
        for case, content in cases(part):
            name = content["data"]["name"]
            loaded.setdefault(name, load(name, None))
            for method, spec in specs_of(content, seed, part).items():
                wanted.append((spec, case, method))
        for name, data in loaded.items():
            missing = [one for one in wanted if one[0].data.name == name and one[0].digest not in known]
            results = run_batch([spec for spec, _, _ in missing], data=data, masks=False)
            new = [row_of(*one, result) for one, result in zip(missing, results, strict=True)]
            _append(new)
            known |= {row["spec_hash"]: {key: str(value) for key, value in row.items()} for row in new}
        found += [known[spec.digest] for spec, _, _ in wanted]
    return found


def _append(new: Sequence[Mapping[str, Any]]) -> None:
    fresh = not RESULTS.exists()
    with RESULTS.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerows(new)


def interval(right: int, of: int) -> str:
    """A fraction in percent with its exact 95 % interval (Clopper and Pearson 1934)."""
    low = 0.0 if right == 0 else float(beta.ppf(0.025, right, of - right + 1))
    high = 1.0 if right == of else float(beta.ppf(0.975, right + 1, of - right))
    return f"{100 * right / of:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown, one row a case."""
    yield (
        "| case | runs | all named in the round they wake | or the round after | attackers missed | honest clients excluded "
        "| attack accuracy at the end: every round, first, oracle | rounds lost |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for case in dict.fromkeys(row["case"] for row in found):
        of = {name: [row for row in found if row["case"] == case and row["method"] == name] for name in METHODS}
        every = of["every-round"]
        wakes, late = int(every[0]["wakes_in"]), [0, 0]
        for row in every:
            named = [99 if one == "-" else int(one) for one in row["named_in"].split()]
            late = [late[k] + int(max(named, default=0) <= wakes + k) for k in (0, 1)]
        ends = [
            f"{np.mean([float(row['attack_accuracy_by_round_percent'].split()[-1]) for row in of[name]]):.1f}"
            if of[name] and of[name][0]["attack_accuracy_by_round_percent"].split()[-1] != "-"
            else "-"
            for name in METHODS
        ]
        missed, wrong, lost = (
            sum(int(row[key]) for row in every) for key in ("missed_clients", "falsely_excluded_clients", "lost_rounds")
        )
        attackers = sum(int(row["malicious_clients"]) for row in every)
        n = len(every)
        in_time = [interval(one, n) for one in late]
        if case.startswith("one "):  # they wake one after the other
            named_in = (
                "in " + ", ".join(sorted(row["named_in"].split(), key=int))
                for row in every
                if not int(row["missed_clients"])
            )
            in_time = ["; ".join(named_in), ""]
        yield (
            f"| {case} | {n} | {in_time[0]} | {in_time[1]} | {missed} of {attackers} | {wrong} "
            f"| {', '.join(ends)} | {lost} |"
        )


def noise(draws: int = 40) -> Iterator[str]:
    """Markdown: the variance of the model that is made without excluded clients, against that of the plain mean."""
    rows, rng = named_design("graded-15x10-b").matrix, np.random.default_rng(0)
    yield "| excluded of 15 clients | median | largest |"
    yield "|---|---|---|"
    for gone in range(6):
        found = [
            best_in_span(rows, target=np.ones(15), forbidden=rng.choice(15, gone, replace=False).tolist())
            for _ in range(draws)
        ]
        values = [np.inf if one is None else one.amplification for one in found]
        yield f"| {gone} | {np.median(values):.2f} | {max(values):.2f} |"


def main() -> None:
    """Run what is missing and print the table."""
    part = sys.argv[1] if len(sys.argv) > 1 else "iid"
    if part == "noise":
        print("\n".join(noise()))
        return
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    first = int(sys.argv[3]) if len(sys.argv) > 3 else FIRST_SEED
    for line in table(rows(part, range(first, first + seeds))):
        print(line)


if __name__ == "__main__":
    main()
