"""What tests in every round and on suspicion find: attackers that wake later, on MNIST and the embedded digits, 15 clients.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/standing.py [part] [seeds] [first seed]

Parts: `iid`, `dirichlet`, `digits` and `cifar10` (1, 3 and 5 that wake in round 2, 5 or 9 of 10; the last needs `fedgt
features cifar10`), `nobody-iid`, `nobody-dirichlet`, `nobody-digits` and `nobody-cifar10` (30 rounds), `absent`
(3 that wake in round 6 of 12; the groups are those of a run of one's own, and after the first round each client misses each
round with some probability), `replacing` (one that replaces the model), `knowing` (attackers who know the schedule),
`growing` (one attacker in each of the first sums, whose poison grows by a tenth of it in each round from the fifth on),
`noise` (of the model after exclusions; needs no data), and `cost` (of a round; on an idle machine).

Runs of one seed are paired: the same data, attackers and order of samples for all schedules, and for an oracle that leaves
the attackers out from the start. Rows go to docs/results/standing.csv (resumable). The seeds chose no constant.
"""

import csv
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import beta

from fedgt.design import named_design
from fedgt.experiment import ExperimentSpec, make_spec, run
from fedgt.experiment.batch import run_batch
from fedgt.experiment.simulation import simulate
from fedgt.planning import SPARE, default_design
from fedgt.privacy import best_in_span, disclosed_share
from fedgt.record import RunResult
from fedgt.train import ImageData, load

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "standing.csv"
FIRST_SEED: Final = 57_000
COLUMNS: Final = (
    "spec_hash", "seed", "case", "method", "data", "partition", "rounds", "malicious_clients", "wakes_in", "named_in",
    "missed_clients", "falsely_excluded_clients", "falsely_in", "lost_rounds", "attack_accuracy_by_round_percent",
    "top1_accuracy_by_round_percent", "tests_in", "uploads_after_first", "share_after_first", "balanced",
    "privacy_strict", "privacy_cautious", "status", "cpu_seconds",
)  # fmt: skip
METHODS: Final[Mapping[str, Mapping[str, Any]]] = {
    "on-suspicion": {"screen.schedule": "on-suspicion"},
    "on-suspicion, roll back": {"screen.schedule": "on-suspicion", "screen.roll_back": True},
    "every-round": {"screen.schedule": "every-round"},
    "first": {"screen.schedule": "first"},
    "oracle": {"method": "oracle"},
}
DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "iid": {"name": "mnist"},
    "dirichlet": {"name": "mnist", "partition": "dirichlet"},
    "digits": {"name": "digits"},
    "cifar10": {"name": "cifar10-lite0"},
}

Case = tuple[str, dict[str, Any]]


def sleepers(data: Mapping[str, Any]) -> Iterator[Case]:
    """1, 3 and 5 that wake in round 2, 5 or 9."""
    for wakes in (2, 5, 9):
        for count in (1, 3, 5):
            attack = {"malicious": count, "first_round": wakes}
            yield f"{count} wake in round {wakes}", {"data": data, "attack": attack}


def absent() -> Iterator[Case]:
    """Clients that are away now and then."""
    groups = default_design(15, graded=True, privacy=4, spare=SPARE).matrix.tolist()
    for percent in (0, 2, 5, 10):
        yield (
            f"each client misses {percent} % of rounds",
            {
                "away": percent / 100,
                "federation": {"rounds": 12},
                "design": {"matrix": groups, "name": "reserving"},
                "attack": {"malicious": 3, "first_round": 6},
            },
        )


def replacing() -> Iterator[Case]:
    """One attacker that replaces the model, in an early, a middle and the last round."""
    for wakes in (2, 5, 10):
        for kind in ("label-flip", "backdoor"):
            attack = {"kind": kind, "malicious": 1, "first_round": wakes, "boost": 15.0}
            yield f"replaces the model in round {wakes}, {kind}", {"attack": attack}


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


def growing() -> Iterator[Case]:
    """Three whose poison grows slowly."""
    for kind in ("label-flip", "backdoor"):
        attack = {"kind": kind, "malicious": 3, "first_round": 5, "growth": 0.1}
        yield f"3 grow by a tenth a round, {kind}", {"attack": attack, "federation": {"rounds": 24}}


def cases(part: str) -> list[Case]:
    """Of a part: a name, and the keys of the specification."""
    if part in DATA:
        return [(f"{name}, {part}", content) for name, content in sleepers(DATA[part])]
    kind, _, where = part.partition("-")
    if kind == "nobody" and where in DATA:
        return [(f"nobody, {where}", {"data": DATA[where], "federation": {"rounds": 30}})]
    if part == "knowing":
        return [(name, {"data": DATA["iid"], **content}) for name, content in knowing()]
    if part == "absent":
        return [(name, {"data": DATA["iid"], **content}) for name, content in absent()]
    if part == "replacing":
        return [(name, {"data": DATA["iid"], **content}) for name, content in replacing()]
    if part == "growing":
        return [(name, {"data": DATA["iid"], **content}) for name, content in growing()]
    raise SystemExit(
        f"no part {part!r}: take {', '.join(DATA)}, one of these after 'nobody-', absent, replacing, knowing, growing, "
        "noise or cost"
    )


def specs_of(content: Mapping[str, Any], seed: int, part: str) -> dict[str, ExperimentSpec]:
    """By method; nobody malicious has no oracle."""
    left_out = {
        "nobody": ("on-suspicion, roll back", "first", "every-round", "oracle"),
        "knowing": ("on-suspicion, roll back", "oracle"),
        "growing": ("oracle",),
        "absent": ("on-suspicion, roll back", "every-round"),
        "replacing": ("on-suspicion, roll back", "every-round"),
    }.get(part.partition("-")[0], ("on-suspicion, roll back",))
    given = {"privacy": 4, "seed": seed, **content}
    if (away := given.pop("away", None)) is not None:
        lots = np.random.default_rng([seed, 77]).random((given["federation"]["rounds"] + 1, 15))
        missing = [(number, client) for number, client in np.argwhere(lots < away).tolist() if number > 1]
        given["faults"] = [{"client": client, "round": number} for number, client in missing]
    return {method: make_spec(given, changes) for method, changes in METHODS.items() if method not in left_out}


def row_of(spec: ExperimentSpec, case: str, method: str, result: RunResult) -> dict[str, Any]:
    """One run."""
    malicious = [client for client in result.clients if client.truth == "malicious"]
    wrong = [client for client in result.clients if client.truth == "benign" and client.excluded]
    later = len(result.rounds) - 1
    uploads = sum(len(row.members) for row in result.aggregates if row.status == "open" and row.round > 1)
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
        "tests_in": " ".join(str(row.round) for row in result.tests),
        "uploads_after_first": f"{uploads / len(result.clients) / later:.3f}",
        "share_after_first": f"{np.mean([share_of(result, number) for number in range(2, later + 2)]):.3f}",
        "balanced": balanced(spec, result),
        "privacy_strict": result.privacy.strict,
        "privacy_cautious": result.privacy.cautious,
        "status": result.status,
        "cpu_seconds": f"{result.cpu_seconds:.1f}",
    }


def opened(result: RunResult, number: int) -> list[tuple[str, ...]]:
    """The members of each sum of a round."""
    return [row.members for row in result.aggregates if row.round == number and row.status == "open"]


def share_of(result: RunResult, number: int) -> float:
    """The mean disclosed share of a client by the sums of one round."""
    clients = [client.id for client in result.clients]
    found = opened(result, number)
    if not found:
        return 0.0
    share = disclosed_share(np.array([[int(one in members) for one in clients] for members in found]))
    return 0.0 if share is None else share.mean


def balanced(spec: ExperimentSpec, result: RunResult) -> bool:
    """Whether each group of the first sums, the partition, holds equally many attackers: then no difference shows them."""
    malicious = {client.id for client in result.clients if client.truth == "malicious"}
    if spec.method != "fedgt" or not malicious:
        return False
    partition = [set(one) for one in opened(result, 1)[:3]]
    return len({len(malicious & one) for one in partition}) == 1


def rows(part: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
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
            # Who leaves needs the protocol; without it the sums are the same.
            results = run_batch([spec for spec, _, _ in missing], data=data, masks=part == "absent")
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


def at_the_end(row: Mapping[str, Any], key: str) -> float:
    """The last of the values by round."""
    last = str(row[key]).split()[-1]
    return np.nan if last == "-" else float(last)


def in_time(row: Mapping[str, Any], late: int) -> bool:
    """Whether all attackers were named in the round they wake, or so many rounds after it."""
    named = [99 if one == "-" else int(one) for one in str(row["named_in"]).split()]
    return max(named, default=0) <= int(row["wakes_in"]) + late


def seeds_of(part: str, count: int, first: int) -> list[int]:
    """The seeds of a part: the next ones; of `growing` those whose attackers sit in all three first sums."""
    seeds: list[int] = []
    data = load("mnist", None) if part == "growing" else None
    for seed in itertools.count(first):
        if len(seeds) == count:
            break
        if data is not None:
            spec = make_spec({"privacy": 4, "seed": seed, "data": DATA["iid"], "attack": {"malicious": 3}})
            simulation = simulate(spec, data=data, masks=False)
            grouping = simulation.grouping
            assert grouping is not None
            if any(len(simulation.malicious & set(grouping.members(group))) != 1 for group in range(3)):
                continue
        seeds.append(seed)
    return seeds


def table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown, one row a case and schedule; uploads and share are those of a round after the first."""
    yield (
        "| case | schedule | runs | all named in the round they wake | attackers missed | honest clients excluded "
        "| attack accuracy in %: this, first, oracle | tests a run | uploads a round | mean share a round "
        "| lost rounds a run | top-1 accuracy in %: the same |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for case in dict.fromkeys(row["case"] for row in found):
        of = {name: [row for row in found if row["case"] == case and row["method"] == name] for name in METHODS}
        for name, these in of.items():
            if these and name not in ("first", "oracle"):
                yield f"| {case} | {name} | {len(these)} | {' | '.join(_figures(these, of))} |"
    for name in ("on-suspicion", "every-round"):
        several = [row for row in found if row["method"] == name and int(row["malicious_clients"]) >= 3]
        even = [row for row in several if str(row["balanced"]) == "True"]
        for what, some in (("three or more attackers", several), ("of these with as many in each first sum", even)):
            if some:
                late = [interval(sum(in_time(row, one) for row in some), len(some)) for one in (0, 1)]
                yield f"{name}, {what}: {len(some)} runs, in the round they wake {late[0]}, or the round after {late[1]}"
    for name in METHODS:
        wronged = [int(row["falsely_excluded_clients"]) > 0 for row in found if row["method"] == name]
        if wronged:
            part = f"{sum(wronged)} of {len(wronged)} runs, {interval(sum(wronged), len(wronged))}"
            yield f"{name}: somebody honest was excluded in {part}"


def _figures(these: Sequence[Mapping[str, Any]], of: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    attackers = sum(int(row["malicious_clients"]) for row in these)
    yield str(sum(in_time(row, 0) for row in these)) if attackers else "-"
    yield f"{sum(int(row['missed_clients']) for row in these)} of {attackers}" if attackers else "-"
    yield str(sum(int(row["falsely_excluded_clients"]) for row in these))
    key = "attack_accuracy_by_round_percent"
    compared = (these, of["first"], of["oracle"])
    yield ", ".join(f"{np.mean([at_the_end(row, key) for row in some]):.1f}" if some else "-" for some in compared)
    yield f"{np.mean([len(str(row['tests_in']).split()) for row in these]):.1f}"
    yield f"{np.mean([float(row['uploads_after_first']) for row in these]):.2f}"
    yield f"{np.mean([float(row['share_after_first']) for row in these]):.2f}"
    yield f"{np.mean([int(row['lost_rounds']) for row in these]):.1f}"
    key = "top1_accuracy_by_round_percent"
    yield ", ".join(f"{np.mean([at_the_end(row, key) for row in some]):.1f}" if some else "-" for some in compared)


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


def cost(repeats: int = 3) -> Iterator[str]:
    """Markdown: the CPU time of a quiet round, and of a test, against plain secure averaging, with the protocol."""
    data, few, many = load("mnist", None), 2, 12
    yield "| a round of 15 clients, training included | CPU ms, median | times plain secure averaging |"
    yield "|---|---|---|"
    plain = 0.0
    for name, changes in (
        ("plain secure averaging", {"method": "no-defence"}),
        ("a quiet round", {"screen.schedule": "on-suspicion", "screen.unannounced": 0.0}),
        ("a test", {"screen.schedule": "every-round"}),
    ):
        found = []
        for seed in range(FIRST_SEED, FIRST_SEED + repeats):
            ended = [
                run(
                    make_spec(
                        {"privacy": 4, "seed": seed, "data": {"name": "mnist"}, "federation": {"rounds": rounds}},
                        changes,
                    ),
                    data=data,
                )
                for rounds in (few, many)
            ]
            if name == "a quiet round" and len(ended[1].tests) > 1:
                continue
            found.append((ended[1].cpu_seconds - ended[0].cpu_seconds) / (many - few))
        took = float(np.median(found))
        plain = plain or took
        yield f"| {name} | {1000 * took:.0f} | {took / plain:.2f} |"


def main() -> None:
    """Run what is missing and print the table."""
    part = sys.argv[1] if len(sys.argv) > 1 else "iid"
    if part in ("noise", "cost"):
        print("\n".join(noise() if part == "noise" else cost()))
        return
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    first = int(sys.argv[3]) if len(sys.argv) > 3 else FIRST_SEED
    for line in table(rows(part, seeds_of(part, seeds, first))):
        print(line)


if __name__ == "__main__":
    main()
