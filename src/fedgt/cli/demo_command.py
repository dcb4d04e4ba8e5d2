"""`fedgt demo`: the main job on data that ships with scikit-learn."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedgt.errors import SpecError

if TYPE_CHECKING:
    from fedgt.record import RunResult

DEMO: dict[str, Any] = {
    "seed": 1,
    "privacy": 4,
    "data": {"name": "digits"},
    "federation": {"clients": 15, "rounds": 10},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5},
    "attack": {"kind": "label-flip", "malicious": 5, "source": 9, "target": 3},
}
"""The demo's specification. The seed was fixed before its outcome was looked at."""

Way = Literal["graded", "paper"]


def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the runs in this folder.")] = None,
    seed: Annotated[int, typer.Option(help="Another federation, with other attackers.")] = DEMO["seed"],
    malicious: Annotated[int, typer.Option(help="How many of the 15 clients flip labels.")] = 5,
    first_round: Annotated[int, typer.Option(min=1, max=10, help="The round they wake in.")] = 1,
    method: Annotated[
        Way,
        typer.Option(help="`paper`: its 15 x 8 design, its screen and its two strategies instead of graded evidence."),
    ] = "graded",
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """15 clients learn digits, 5 of them flip labels 9 -> 3; the server sees securely aggregated group sums only."""
    from rich.console import Console

    from fedgt.cli.round_bar import round_bar
    from fedgt.cli.tables import print_verdicts
    from fedgt.experiment import PAPER, make_spec, run, run_into
    from fedgt.record import RunResult

    console = Console(highlight=False, soft_wrap=True)
    began = time.perf_counter()
    common = {"seed": seed, "attack.malicious": malicious} | (dict(PAPER) if method == "paper" else {})
    sleepers = first_round > 1 and malicious > 0
    if sleepers:
        if method == "paper":
            raise SpecError(f"--first-round {first_round} with --method paper: the paper tests once; take graded")
        common |= {"attack.first_round": first_round}
    ways: dict[str, dict[str, Any]] = {"no-defence": {"method": "no-defence"}}
    if method == "paper":
        ways |= {f"fedgt {name}": {"decode.strategy": name} for name in ("count", "delta")}
    else:
        ways["fedgt"] = {}
    ways["oracle"] = {"method": "oracle"}
    results: dict[str, RunResult] = {}
    for name, changes in ways.items():
        spec = make_spec(DEMO, common | changes)
        with round_bar(name) as on_round:
            results[name] = (
                run(spec, on_round=on_round) if out is None else run_into(spec, out / name, on_round=on_round)
            )
    if as_json:
        typer.echo(json.dumps({name: one.model_dump(mode="json") for name, one in results.items()}, allow_nan=False))
        return
    ours = next(one for name, one in results.items() if name.startswith("fedgt"))
    groups = len(ours.test.groups) if ours.test is not None else 0
    console.print(
        f"15 clients train on scikit-learn's digits; {malicious} of them label every 9 as a 3"
        f"{f' from round {first_round} on' if sleepers else ''}. The server sees {groups} securely\n"
        "aggregated sums of several clients each, never a single model, and is told neither who attacks nor how. It\n"
        "tests the sums, names suspects, drops them and trains on.\n"
    )
    print_verdicts(ours)
    if ours.status == "stopped":
        console.print(f"stopped: {ours.reason}", markup=False)
    console.print(f"\n{'':<14}{'top-1 accuracy':>16}{'9s taken for 3s':>18}{'rounds':>8}")
    nobody = malicious == 0
    for name, one in results.items():
        last = one.rounds[-1]
        top1, attack = 100 * (last.top1_accuracy or 0), 100 * (last.attack_accuracy or 0)
        taken = f"{'nobody tries':>18}" if nobody else f"{attack:>16.2f} %"
        console.print(f"{name:<14}{top1:>14.2f} %{taken}{last.round:>8}")
    console.print(f"\n{_sums(ours)}")
    console.print(
        f"Privacy: {ours.privacy.promised} were promised, {ours.privacy.strict} are proved. No combination of the sums "
        f"about one set of models mixes fewer clients.\n{len(results)} runs took {time.perf_counter() - began:.1f} s."
    )
    woken = f"\n{_woken(ours, first_round)}" if sleepers else ""
    console.print(f"\n{_verdict(ours)}{woken}" + ("" if nobody else f"\n{_damage(results, ours)}"))


def _sums(ours: "RunResult") -> str:
    """What the server has read, in words."""
    tests = [row for row in ours.rounds if row.purpose == "test"]
    others = [row for row in ours.rounds if row.purpose != "test"]
    tested, trained = (sum(row.secure_sums for row in rows) for rows in (tests, others))
    megabytes = sum(row.bytes_up + row.bytes_down for row in ours.rounds) / 1e6
    held = "1 test" if len(tests) == 1 else f"{len(tests)} tests"
    over = "all" if trained <= len(others) else "groups of all"
    rest = f", and {trained} in the other rounds, over {over} who were kept" if others else ""
    read = f"The server read {tested + trained} sums: {tested} in {held}, over a group each{rest}"
    return f"{read}. Messages: {megabytes:.1f} MB."


def _verdict(ours: "RunResult") -> str:
    """Who was found, and who was wronged."""
    malicious = [client for client in ours.clients if client.truth == "malicious"]
    if not malicious:
        wronged = [client.id for client in ours.clients if client.excluded]
        return f"Nobody attacks, and {', '.join(wronged) + ' left out' if wronged else 'nobody is left out'}."
    found = sum(client.excluded for client in malicious)
    wronged = [client.id for client in ours.clients if client.truth == "benign" and client.excluded]
    honest = f"{len(wronged)} honest left out: {', '.join(wronged)}" if wronged else "nobody wronged"
    return f"{found} of {len(malicious)} attackers found, {honest}."


def _woken(ours: "RunResult", first_round: int) -> str:
    """When those were named who woke late."""
    found = [one for one in ours.clients if one.truth == "malicious" and one.excluded]
    named = sorted({one.decided_in for one in found if one.decided_in is not None})
    rounds = " and ".join(f"round {one}" for one in named) or "no round"
    return f"They woke in round {first_round} and were named in {rounds}."


def _damage(results: Mapping[str, "RunResult"], ours: "RunResult") -> str:
    """What the attack achieved with and without a defence."""
    without, with_fedgt = (100 * (one.rounds[-1].attack_accuracy or 0) for one in (results["no-defence"], ours))
    return f"9s taken for 3s: {without:.0f} % without fedgt, {with_fedgt:.0f} % with it."
