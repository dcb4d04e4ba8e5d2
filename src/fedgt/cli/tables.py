"""What a run says on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedgt.foreign_text import plain

if TYPE_CHECKING:
    from rich.table import Table

    from fedgt.record import RunResult
    from fedgt.record.result import ClientRow, GradedRow, RoundRow, TestRow


_MOST_NAMED = 3
"""Test rounds in a row that are named one by one."""


def print_run(result: "RunResult") -> None:
    """The verdicts, the last accuracies, the privacy account and the warnings, on stdout."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if result.test is not None:
        print_verdicts(result)
    if not result.rounds:
        console.print(printable(f"{result.status}: {result.reason}"), markup=False)
        return
    last = result.rounds[-1]
    attacked = any(client.truth == "malicious" for client in result.clients)
    shown = last if attacked else last.model_copy(update={"attack_accuracy": None})
    console.print(f"after round {last.round}: {accuracies(shown)}")
    privacy = result.privacy
    console.print(
        f"privacy: promised r = {privacy.promised}, achieved {privacy.strict} for every set of local models, "
        f"{privacy.cautious if privacy.cautious is not None else 'no'} test rows together"
        + (" (below the promise, as the specification allows)" if privacy.overridden else "")
    )
    if privacy.share_mean is not None:
        console.print(
            f"disclosed: {100 * max(privacy.share_mean, 0.0):.0f} % of what is particular to a client in the mean, "
            f"{100 * max(0.0, *privacy.shares.values()):.0f} % at most, if clients differ equally and independently"
        )
    if result.status != "finished":
        console.print(printable(f"stopped: {result.reason}"), markup=False)
    for warning in result.warnings:
        console.print(printable(f"warning: {warning}"), markup=False)


def print_verdicts(result: "RunResult") -> None:
    """The verdicts on stdout, and what the evidence of the test says that has named somebody last."""
    from rich.console import Console

    if result.test is None:
        return
    console = Console(highlight=False, soft_wrap=True)
    tests = result.tests or (result.test,)
    console.print(printable(power_line(tests)), markup=False)
    console.print(verdict_table(tests, result.clients))
    graded = telling(tests, result.clients).graded
    if graded is not None:
        console.print(f"evidence: {evidence_line(graded)}", markup=False)
    for line in meanings(result.clients):
        console.print(printable(line), markup=False)


def telling(tests: "Sequence[TestRow]", clients: "Sequence[ClientRow]") -> "TestRow":
    """The last test that has named somebody; the last one if none has. Later tests set aside whoever was named."""
    named = {client.decided_in for client in clients if client.excluded}
    return next((test for test in reversed(tests) if test.round in named), tests[-1])


def power_line(tests: "Sequence[TestRow]") -> str:
    """What the tests could have missed, in one line."""
    known = [(row.shift, row.attackers, test.round) for test in tests for row in test.power]
    seen = [(shift, attackers, number) for shift, attackers, number in known if isinstance(shift, float)]
    if not seen:
        return "could be missed: not known for these tests"
    number = min(seen)[2]
    pushes = ", ".join(
        f"by {'one attacker' if attackers == 1 else f'{attackers} together'} below {shift:.2g}"
        for shift, attackers, test in sorted(seen, key=lambda one: one[1])
        if test == number
    )
    return f"could be missed: a push {pushes} honest spreads (the test of round {number} names stronger ones 9 times of 10)"


def meanings(clients: "Sequence[ClientRow]") -> list[str]:
    """What the words in the table mean, the most suspicious first."""
    from fedgt.record.verdict_words import MEANINGS

    said = {client.verdict for client in clients}
    return [f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in said]


def verdict_table(tests: "Sequence[TestRow]", clients: "Sequence[ClientRow]") -> "Table":
    """One row per client: its groups, posterior, verdict and, in a simulation, the truth.

    Args:
        tests: The test rounds, at least one; the groups are those of the last that has named somebody.
        clients: The verdicts after them.
    """
    from rich.table import Table
    from rich.text import Text

    test = telling(tests, clients)
    title = f"group test in {_rounds([one.round for one in tests])}: {test.design}"
    title += f", outcomes {test.outcomes}" if test.outcomes else ""
    table = Table(title=Text(printable(title)), title_justify="left")
    table.add_column("client")
    table.add_column("groups (+ positive, - negative, ? erased)" if test.outcomes else "groups")
    table.add_column("P(malicious)", justify="right")
    table.add_column("verdict")
    simulated = any(client.truth for client in clients)
    if simulated:
        table.add_column("truth")
    for client in clients:
        marks = (f"{group}{_sign(test.outcomes, group)}" for group in client.groups)
        posterior = f"{client.posterior:.4f}" if isinstance(client.posterior, float) else "unknown"
        right = client.truth == "faulty" or client.excluded == (client.truth == "malicious")
        truth = Text(client.truth or "", style="" if right else "bold red")
        style = "yellow" if client.excluded else ""
        name = Text(printable(client.id))
        named = f", round {client.decided_in}" if client.excluded and client.decided_in and len(tests) > 1 else ""
        row = (name, " ".join(marks) or "none", posterior, Text(f"{client.verdict}{named}", style=style))
        table.add_row(*row, *([truth] if simulated else []))
    return table


def _rounds(numbers: Sequence[int]) -> str:
    if len(numbers) > _MOST_NAMED and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"rounds {numbers[0]} to {numbers[-1]}"
    return f"round {' and '.join(map(str, numbers))}"


def _sign(outcomes: str, group: int) -> str:
    return {"0": "-", "1": "+"}.get(outcomes[group : group + 1], "?") if outcomes else ""


def accuracies(row: "RoundRow") -> str:
    """The accuracies after a round."""
    text = "not measured" if row.top1_accuracy is None else f"top-1 accuracy {100 * row.top1_accuracy:.2f} %"
    return text if row.attack_accuracy is None else f"{text}, attack accuracy {100 * row.attack_accuracy:.2f} %"


_STAGES = {
    "keys": "exchanging keys",
    "further": "asking for more sums",
    "shares": "sharing secrets",
    "masked": "training, masked models",
    "agree": "agreeing on who is alive",
    "unmask": "opening the sums",
    "opened": "sums are open",
}


def stage_text(purpose: str, stage: str) -> str:
    """What the secure aggregation is doing, in words."""
    return printable(f"{purpose}: {_STAGES.get(stage, stage)}")


def printable(text: str) -> str:
    """The text without anything that could control a terminal; names and reasons are written by strangers."""
    return plain(text, longest=None)


def evidence_line(graded: "GradedRow") -> str:
    """The evidence of a graded test in one line."""
    against = graded.against_nobody
    text = f"{against:.1f} nats against nobody" if isinstance(against, float) else f"{against} nats against nobody"
    label = graded.label
    if label is not None and label.kind == "targeted":
        text += f"; label {', '.join(map(str, label.labels))} is under attack"
    elif label is not None and label.kind == "untargeted":
        text += f"; an untargeted attack, {len(label.labels)} labels get worse"
    return text
