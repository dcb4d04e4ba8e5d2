"""Clients that break the rules of the secure sums, over the real protocol: who is left out, and what do they gain?

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/liars.py [--seeds 20] [--first 300] [--data digits mnist]
    FEDGT_DATA=<the same> python benchmarks/liars.py --schedule on-suspicion every-round

The second has tests in every round, or on suspicion, ten rounds, and the attacks of `STANDING`. Its rows go to
docs/results/liars-standing.csv.

15 clients, 6 rounds, the default design and policies, anonymous mode. One or two liars per run, with each attack of
`lying_site.py` and a label flip as it is or times 4. Rows go to docs/results/liars.csv. A run that is there is not made
again, and the seeds come one after the other: what is stopped goes on with the same command. Then the table is printed.
An attacker that is kept gains nothing if its attack accuracy is at most one standard deviation above that of the oracle,
which trains without it, in the mean of the same data and number of attackers. The oracle of a seed may be above that by
itself, so that the last column compares with the oracle of the same seed.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from threadpoolctl import threadpool_limits

from fedgt.engine import ClientEndpoint, LocalTransport
from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.experiment.one_run import run_steps
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.federation.state import Coming
from fedgt.planning import SPARE, default_design
from fedgt.record import RunResult
from fedgt.train import ImageData, load
from lying_site import ATTACKS, STANDING, WAKES, Liar

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "liars.csv"
RESULTS_STANDING: Final = RESULTS.with_name("liars-standing.csv")
FIRST: Final = "first"
ROUNDS: Final = 6
ROUNDS_STANDING: Final = 10
PRIVACY: Final = 4
BOOSTS: Final = ("1", "4")
ORACLE, NO_DEFENCE = "oracle", "no-defence"
HEADS: Final = (
    "runs | stopped, or an honest client out | an honest client waits | liars out | out or waiting | out or no gain | "
    "out, or no more than the oracle of its seed"
)
COLUMNS: Final = (
    "data",
    "attack",
    "boost",
    "attackers",
    "seed",
    "honest_excluded",
    "honest_waiting",
    "attackers_excluded",
    "attackers_waiting",
    "reported",
    "rounds",
    "status",
    "top1_percent",
    "attack_percent",
    "cpu_seconds",
)
MORE: Final = ("schedule", "clients", "tests", "lost", "last_lost")
"""Columns of the other schedules: at the end the rounds that opened all sums, those that left the model as it was, and the
last of these."""
Row = dict[str, str]
Cell = tuple[str, str, str, str]


def cells(data: str, schedule: str) -> Iterator[Cell]:
    """Data, attack, boost and attackers of all cells."""
    for attackers in ("1", "2"):
        yield data, ORACLE, "1", attackers
        for attack, boost in product((NO_DEFENCE, *(ATTACKS if schedule == FIRST else STANDING)), BOOSTS):
            yield data, attack, boost, attackers


def spec_of(cell: Cell, seed: int, *, method: str, schedule: str, clients: int) -> ExperimentSpec:
    """The run of a cell, with poisoned clients that keep the rules of the sums."""
    data, attack, boost, attackers = cell
    standing: dict[str, Any] = {"screen": {"schedule": FIRST}}
    if method == "fedgt" and schedule != FIRST:
        # The groups of a run of one's own: it reserves some for tests after a fault, which a simulation does not.
        groups = default_design(clients, graded=True, privacy=PRIVACY, spare=SPARE)
        standing = {"screen": {"schedule": schedule}, "design": {"matrix": groups.matrix.tolist(), "name": "reserving"}}
    return make_spec(
        {
            "seed": seed,
            "privacy": PRIVACY,
            "method": method,
            "data": {"name": data},
            "federation": {"clients": clients, "rounds": ROUNDS if schedule == FIRST else ROUNDS_STANDING},
            **standing,
            "attack": {
                "kind": "label-flip",
                "source": 1,
                "target": 7,
                "malicious": int(attackers),
                "boost": float(boost),
                "first_round": WAKES if attack.startswith("wakes") else 1,
            },
        }
    )


def with_liars(simulation: Simulation, honest: Simulation, attack: str, seed: int) -> None:
    """Put liars in the places of the poisoned clients."""
    others = [client for client in simulation.clients if client not in simulation.malicious]
    victims = tuple(np.random.default_rng([seed, 40]).choice(others, 2, replace=False).tolist())
    handlers = {}
    for client, site in simulation.cohort.clients.items():
        if client in simulation.malicious:
            own = honest.cohort.clients[client]
            handlers[client] = Liar(client, site, own, attack=attack, victims=victims, seed=seed).handle
        else:
            handlers[client] = ClientEndpoint(client, site, minimum_group_size=PRIVACY).handle
    simulation.run.federation = replace(simulation.run.federation, transport=LocalTransport(handlers))


def held(cell: Cell, seed: int, data: ImageData, schedule: str, clients: int = 15) -> Row:
    """One run as a row."""
    began = time.process_time()
    attack = cell[1]
    lies = attack in STANDING
    spec = spec_of(cell, seed, method="fedgt" if lies else attack, schedule=schedule, clients=clients)
    simulation = simulate(spec, data=data)
    if lies:
        # Who is asked is drawn from the same streams; nobody is malicious there.
        honest = simulate(make_spec({**spec.model_dump(), "attack": {}}), data=data)
        for number in range(1, spec.federation.rounds + 1):
            honest.cohort.expect(simulation.malicious, round=number)
        with_liars(simulation, honest, attack, seed)
    steps, reported, result = run_steps(simulation), set[str](), None
    lost: list[int] = []
    coming: Coming | None = None
    while result is None:
        before = coming
        try:
            coming = next(steps)
        except StopIteration as end:
            result = end.value
        now = simulation.run.state.parameters
        if before and all(np.array_equal(now[name], before.parameters[name]) for name in now):
            lost.append(before.round)
    assert isinstance(result, RunResult)
    state, last = simulation.run.state, result.rounds[-1]
    for client in simulation.malicious:
        if any(f"{client}: it has left" in warning for warning in result.warnings):
            reported.add(client)
    left_out = {client.id for client in result.clients if client.excluded}
    values: tuple[Any, ...] = (
        *cell,
        seed,
        len(left_out - simulation.malicious),
        len(state.waiting - simulation.malicious),
        len(left_out & simulation.malicious),
        len(state.waiting & simulation.malicious),
        len(reported),
        len(result.rounds),
        result.status,
        f"{100 * (last.top1_accuracy or 0):.2f}",
        f"{100 * (last.attack_accuracy or 0):.2f}",
        f"{time.process_time() - began:.2f}",
        *(() if schedule == FIRST else (schedule, clients, len(result.tests), len(lost), lost[-1] if lost else 0)),
    )
    return {column: str(value) for column, value in zip(columns(schedule), values, strict=True)}


def columns(schedule: str) -> tuple[str, ...]:
    """Those of the rows of a schedule."""
    return COLUMNS if schedule == FIRST else (*COLUMNS, *MORE)


def known(place: Path) -> list[Row]:
    """The rows that are there."""
    if not place.exists():
        return []
    with place.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def key(row: Row) -> tuple[str, ...]:
    """What names a run."""
    return (*(row[column] for column in COLUMNS[:5]), row.get("schedule", FIRST), row.get("clients", "15"))


def run(given: argparse.Namespace, place: Path) -> None:
    """Make what is missing, one seed after the other, until the time is over."""
    began, done = time.monotonic(), {key(row) for row in known(place)}
    loaded = {name: load(name) for name in given.data}
    new, seeds = not place.exists(), range(given.first, given.first + given.seeds)
    with place.open("a", newline="", encoding="utf-8") as file, threadpool_limits(1, user_api="blas"):
        writer = csv.DictWriter(file, columns(given.schedule[0]), lineterminator="\n")
        if new:
            writer.writeheader()
        for seed, name, schedule in product(seeds, given.data, given.schedule):
            for cell in cells(name, schedule):
                wanted = (cell[1] == ORACLE or cell[2] in given.boosts) and (
                    not given.attacks or cell[1] in (ORACLE, *given.attacks)
                )
                if not wanted or (*cell, str(seed), schedule, str(given.clients)) in done:
                    continue
                if time.monotonic() - began > given.seconds:
                    return
                writer.writerow(held(cell, seed, loaded[name], schedule, given.clients))
                file.flush()


def table(rows: list[Row]) -> Iterator[str]:
    """All attacks together by data, number of liars and boost; then each attack, over data and boosts."""
    good = no_gain(rows), as_its_oracle(rows)
    yield f"| data | liars | flip | {HEADS} | attack %, no defence | with it |"
    yield "|---" * 12 + "|"
    for data in sorted({row["data"] for row in rows}):
        for attackers, boost in product("12", "14"):
            some = [row for row in rows if (row["data"], row["attackers"], row["boost"]) == (data, attackers, boost)]
            bare = [float(row["attack_percent"]) for row in some if row["attack"] == NO_DEFENCE]
            if some := [row for row in some if row["attack"] in ATTACKS]:
                mean = np.mean([float(row["attack_percent"]) for row in some])
                without = f"{np.mean(bare):.2f}" if bare else ""
                cells_of = " | ".join(counted(some, good))
                yield f"| {data} | {attackers} | x{boost} | {cells_of} | {without} | {mean:.2f} |"
    yield ""
    yield f"| attack | liars | {HEADS} |"
    yield "|---" * 9 + "|"
    for attack, attackers in product(ATTACKS, "12"):
        if some := [row for row in rows if (row["attack"], row["attackers"]) == (attack, attackers)]:
            yield f"| {attack} | {attackers} | {' | '.join(counted(some, good))} |"


def of_oracle(row: Row) -> tuple[str, ...]:
    """What the oracle of a run has in common with it, but for the seed."""
    return row["data"], row["attackers"], row.get("clients", "15")


def no_gain(rows: list[Row]) -> set[tuple[str, ...]]:
    """The runs in which all liars are out, or gain nothing."""
    most = {}
    for about in {of_oracle(row) for row in rows}:
        found = [row for row in rows if row["attack"] == ORACLE and of_oracle(row) == about]
        oracle = np.array([float(row["attack_percent"]) for row in found])
        most[about] = float(oracle.mean() + oracle.std()) if found else -1.0
    return {
        key(row)
        for row in rows
        if row["attackers_excluded"] == row["attackers"] or float(row["attack_percent"]) <= most[of_oracle(row)]
    }


def as_its_oracle(rows: list[Row]) -> set[tuple[str, ...]]:
    """The runs in which all liars are out, or have no more than the oracle of the same data, number and seed."""
    own = {(*of_oracle(row), row["seed"]): float(row["attack_percent"]) for row in rows if row["attack"] == ORACLE}
    return {
        key(row)
        for row in rows
        if row["attackers_excluded"] == row["attackers"]
        or float(row["attack_percent"]) <= own.get((*of_oracle(row), row["seed"]), -1.0)
    }


def counted(some: list[Row], good: tuple[set[tuple[str, ...]], ...]) -> Iterator[str]:
    """Cells of the table."""
    yield str(len(some))
    yield str(sum(row["status"] != "finished" or row["honest_excluded"] != "0" for row in some))
    yield str(sum(row["honest_waiting"] != "0" for row in some))
    yield str(sum(row["attackers_excluded"] == row["attackers"] for row in some))
    out = [int(row["attackers_excluded"]) + int(row["attackers_waiting"]) == int(row["attackers"]) for row in some]
    yield str(sum(out))
    yield from (str(sum(key(row) in one for row in some)) for one in good)


def table_standing(rows: list[Row]) -> Iterator[str]:
    """Each attack by schedule and number of liars, over data and boosts."""
    good = no_gain(rows), as_its_oracle(rows)
    yield f"| clients | schedule | attack | liars | {HEADS} | runs with rounds lost, in the last three | attack % |"
    yield "|---" * 13 + "|"
    names = ("clients", "schedule", "attack", "attackers")
    for clients, schedule in sorted({(row["clients"], row["schedule"]) for row in rows}):
        for attack, attackers in product(STANDING, "12"):
            which = (clients, schedule, attack, attackers)
            if some := [row for row in rows if tuple(row[name] for name in names) == which]:
                lost = sum(row["lost"] != "0" for row in some)
                late = sum(int(row["last_lost"]) > ROUNDS_STANDING - 3 for row in some)
                mean = np.mean([float(row["attack_percent"]) for row in some])
                yield f"| {' | '.join(which)} | {' | '.join(counted(some, good))} | {lost}, {late} | {mean:.2f} |"


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=300)
    parser.add_argument("--data", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop before the next run after so many")
    parser.add_argument("--schedule", nargs="+", default=[FIRST], help=f"{FIRST}, or on-suspicion and every-round")
    parser.add_argument("--clients", type=int, default=15, help="with another schedule")
    parser.add_argument("--attacks", nargs="+", default=[], help="only these")
    parser.add_argument("--boosts", nargs="+", default=BOOSTS, help="only label flips times these")
    parser.add_argument("--out", type=Path, help="another file for the rows")
    given = parser.parse_args()
    standing = given.schedule != [FIRST]
    if (standing and FIRST in given.schedule) or (not standing and given.clients != 15):
        parser.error(f"{FIRST} has a file of its own, with 15 clients")
    place = given.out or (RESULTS_STANDING if standing else RESULTS)
    run(given, place)
    print("\n".join((table_standing if standing else table)(known(place))))


if __name__ == "__main__":
    main()
