"""Who comes back, and who does not, on MNIST and the embedded digits, 15 clients and 12 rounds, `screen.readmit_after = 3`.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/coming_back.py [part] [seeds] [first seed]

Parts: `go-on` (attackers that were left out and go on attacking), `sleep` (they behave while they are out, and attack as
soon as they are back), `wronged` (nobody attacks, and honest clients drawn at random are left out after the first test, as
if it had named them), `alarms` (nobody attacks; who is left out is a false alarm of the first test, if it has one).
Rows go to docs/results/coming-back.csv (resumable). The seeds chose no constant, but for those of `alarms`.
"""

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from fedgt.experiment import make_spec
from fedgt.experiment.simulation import Simulation, simulate
from fedgt.federation import Step
from fedgt.federation.hearing import push_to_be_named
from fedgt.federation.trial import Trial
from fedgt.train import ImageData, load

RESULTS: Final = Path(__file__).parent.parent / "docs" / "results" / "coming-back.csv"
FIRST_SEED: Final = 54_000
COLUMNS: Final = (
    "part", "case", "schedule", "seed", "on_trial", "malicious", "named_in", "back_in", "named_again_in", "heard", "cleared",
    "attack_accuracy_by_round_percent", "tests", "honest_out_at_the_end",
)  # fmt: skip
DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "MNIST, IID": {"name": "mnist"},
    "MNIST, Dirichlet 1.0": {"name": "mnist", "partition": "dirichlet"},
    "digits": {"name": "digits"},
}
EVERY: Final = {"schedule": "every-round", "readmit_after": 3}
SUSPICION: Final = {"schedule": "on-suspicion", "readmit_after": 3, "unannounced": 0.3}

Case = tuple[str, dict[str, Any], int]
"""Its name, the keys of its specification, and how many honest clients are left out after the first test."""


def cases(part: str) -> Iterator[Case]:
    """Of a part."""
    iid, dirichlet, digits = ({"data": data} for data in DATA.values())
    if part == "go-on":
        for count in (1, 3, 5):
            yield f"{count}, MNIST, IID", {**iid, "attack": {"malicious": count}, "screen": EVERY}, 0
        backdoor = {"kind": "backdoor", "malicious": 5, "share": 0.1}
        yield "5 with a backdoor in a tenth of their samples", {**iid, "attack": backdoor, "screen": EVERY}, 0
        yield "3 poison a little", {**iid, "attack": {"malicious": 3, "boost": 0.3}, "screen": EVERY}, 0
        boosted = {"malicious": 3, "boost": 3.0}
        yield "3 push three times as hard, Dirichlet 1.0", {**dirichlet, "attack": boosted, "screen": EVERY}, 0
        for count in (1, 3):
            yield f"{count}, digits", {**digits, "attack": {"malicious": count}, "screen": EVERY}, 0
    elif part == "sleep":
        for kind in ("label-flip", "backdoor"):
            attack = {"kind": kind, "malicious": 3}
            yield f"3, {kind}, MNIST, IID", {**iid, "attack": attack, "screen": EVERY}, 0
        yield "3, label-flip, MNIST, IID", {**iid, "attack": {"malicious": 3}, "screen": SUSPICION}, 0
        yield "3, label-flip, digits", {**digits, "attack": {"malicious": 3}, "screen": EVERY}, 0
    elif part == "wronged":
        for name, data in DATA.items():
            for count in (1, 3):
                nobody = {"data": data, "attack": {"malicious": 0}}
                yield f"{count}, {name}", {**nobody, "screen": EVERY}, count
        yield "1, MNIST, IID", {**iid, "attack": {"malicious": 0}, "screen": SUSPICION}, 1
    elif part == "alarms":
        for screen in (EVERY, SUSPICION):
            yield "MNIST, Dirichlet 1.0", {**dirichlet, "attack": {"malicious": 0}, "screen": screen}, 0
    else:
        raise SystemExit(f"no part {part!r}: take go-on, sleep, wronged or alarms")


def wronged(simulation: Simulation, step: Step, count: int, seed: int) -> None:
    """Some honest clients are left out, as if the test had named them."""
    run, screening = simulation.run, step.screening
    assert screening is not None
    clients = screening.grouping.clients
    inside = [client for client in clients if client not in run.state.excluded]
    drawn = np.random.default_rng([seed, 9]).choice(inside, count, replace=False).tolist()
    state = run.state
    trials = {
        client: Trial(named_in=step.round, push=push_to_be_named(screening.measured, clients.index(client)))
        for client in drawn
    }
    said = {client: replace(state.verdicts[client], verdict="exclude", excluded=True) for client in drawn}
    run._state = replace(
        state,
        excluded=state.excluded | set(drawn),
        verdicts=MappingProxyType({**state.verdicts, **said}),
        trials=MappingProxyType({**state.trials, **trials}),
        looks=(),
    )


def played(part: str, case: Case, seed: int, data: ImageData) -> dict[str, Any]:
    """One run, as a row."""
    name, content, wrong = case
    spec = make_spec({"privacy": 4, "seed": seed, "federation": {"rounds": 12}, **content})
    simulation = simulate(spec, data=data, masks=False)
    run, cohort = simulation.run, simulation.cohort
    attack = dict(cohort.behaviours)
    heard = cleared = 0
    again: dict[str, int] = {}
    run.begin(simulation.initial)
    while (coming := run.coming()) is not None:
        if part == "sleep":  # whoever is out behaves
            awake = {client: one for client, one in attack.items() if client not in run.state.excluded}
            cohort.behaviours = MappingProxyType(awake)
        simulation.begin_round(coming.round, coming.members)
        back = {client for client, trial in run.state.trials.items() if trial.back_in}
        step = run.hold(coming)
        again |= {client: step.round for client in step.excluded if client in back and client not in again}
        if step.screening is not None:
            heard += len(step.screening.hearings)
            cleared += sum(one.says == "cleared" for one in step.screening.hearings.values())
        if coming.round == 1 and wrong:
            wronged(simulation, step, wrong, seed)
    result, trials = run.result(), run.state.trials
    tried = sorted(trials)
    honest = [client.id for client in result.clients if client.truth == "benign" and client.excluded]
    percents = [row.attack_accuracy for row in result.rounds]
    return {
        "part": part,
        "case": name,
        "schedule": spec.screen.schedule,
        "seed": seed,
        "on_trial": " ".join(tried),
        "malicious": " ".join("yes" if client in simulation.malicious else "no" for client in tried),
        "named_in": " ".join(str(trials[client].named_in) for client in tried),
        "back_in": " ".join(str(trials[client].back_in or "-") for client in tried),
        "named_again_in": " ".join(str(again.get(client, "-")) for client in tried),
        "heard": heard,
        "cleared": cleared,
        "attack_accuracy_by_round_percent": " ".join("-" if one is None else f"{100 * one:.2f}" for one in percents),
        "tests": len(result.tests),
        "honest_out_at_the_end": len(honest),
    }


def rows(part: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """All rows of a part; what is not there is run."""
    known: dict[tuple[str, ...], dict[str, Any]] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            known = {tuple(row[key] for key in COLUMNS[:4]): row for row in csv.DictReader(file)}
    data: dict[str, ImageData] = {}
    found = []
    for seed in seeds:
        for case in cases(part):
            name, content, _ = case
            key = (part, name, content["screen"]["schedule"], str(seed))
            if key not in known:
                which = content["data"]["name"]
                if which not in data:
                    data[which] = load(which, None)
                known[key] = {one: str(value) for one, value in played(part, case, seed, data[which]).items()}
                fresh = not RESULTS.exists()
                with RESULTS.open("a", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, COLUMNS)
                    if fresh:
                        writer.writeheader()
                    writer.writerow(known[key])
            found.append(known[key])
    return found


def table(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown, one row a case and schedule."""
    yield (
        "| case | schedule | runs | attackers left out, back | honest clients left out, back | back in round "
        "| named again, so many rounds later | attack accuracy in %: before, most after it |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for case in dict.fromkeys((row["case"], row["schedule"]) for row in found):
        these = [row for row in found if (row["case"], row["schedule"]) == case]
        clients = [one for row in these for one in _clients(row)]
        counts = [
            f"{len(some)}, {sum(one.back > 0 for one in some)}"
            for some in ([one for one in clients if one.malicious is wanted] for wanted in (True, False))
        ]
        back = [one.back for one in clients if one.back]
        again = [one.again - one.back for one in clients if one.again]
        yield (
            f"| {case[0]} | {case[1]} | {len(these)} | {' | '.join(counts)} | {_range(back)} "
            f"| {len(again)}: {_range(again)} | {_accuracy(these)} |"
        )


class _Client(NamedTuple):
    malicious: bool
    back: int
    again: int


def _clients(row: Mapping[str, Any]) -> list[_Client]:
    parts = (row[key].split() for key in ("malicious", "back_in", "named_again_in"))
    return [_Client(one == "yes", _number(back), _number(again)) for one, back, again in zip(*parts, strict=True)]


def _accuracy(these: Sequence[Mapping[str, Any]]) -> str:
    """In the round before anybody is back, and the most after it, means of the runs in which an attacker is."""
    found = []
    for row in these:
        back = [one.back for one in _clients(row) if one.back and one.malicious]
        values = [float(one) for one in row["attack_accuracy_by_round_percent"].split() if one != "-"]
        if back and values[min(back) :]:
            found.append((values[min(back) - 1], max(values[min(back) :])))
    return ", ".join(f"{np.mean(one):.1f}" for one in zip(*found, strict=True)) if found else "-"


def _number(text: str) -> int:
    return 0 if text == "-" else int(text)


def _range(rounds: Sequence[int]) -> str:
    return f"{min(rounds)} to {max(rounds)}" if rounds else "-"


def main() -> None:
    """Run what is missing and print the table."""
    part = sys.argv[1] if len(sys.argv) > 1 else "go-on"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    first = int(sys.argv[3]) if len(sys.argv) > 3 else FIRST_SEED
    for line in table(rows(part, range(first, first + count))):
        print(line)


if __name__ == "__main__":
    main()
