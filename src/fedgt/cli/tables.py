"""What a run says on the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgt.experiment import RunResult
    from fedgt.experiment.result import GradedRow


def print_run(result: "RunResult") -> None:
    """The verdicts, the last accuracies, the privacy account and the warnings, on stdout."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if result.test is not None:
        print_verdicts(result)
    if not result.rounds:
        console.print(f"{result.status}: {result.reason}", markup=False)
        return
    last = result.rounds[-1]
    text = f"after round {last.round}: top-1 accuracy {100 * last.top1_accuracy:.2f} %"
    if last.attack_accuracy is not None:
        text += f", attack accuracy {100 * last.attack_accuracy:.2f} %"
    console.print(text)
    privacy = result.privacy
    console.print(
        f"privacy: promised r = {privacy.promised}, achieved {privacy.strict} for every set of local models, "
        f"{privacy.cautious if privacy.cautious is not None else 'no'} test rows together"
        + (" (below the promise, as the specification allows)" if privacy.overridden else "")
    )
    if result.status != "finished":
        console.print(f"stopped: {result.reason}", markup=False)
    for warning in result.warnings:
        console.print(f"warning: {warning}", markup=False)


def print_verdicts(result: "RunResult") -> None:
    """One row per client: its groups, posterior, verdict and, in a simulation, the truth; then what the evidence says."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    test = result.test
    if test is None:
        return
    rounds = " and ".join(str(one.round) for one in result.tests) or str(test.round)
    title = f"group test in round {rounds}: {test.design}"
    table = Table(title=Text(title + (f", outcomes {test.outcomes}" if test.outcomes else "")), title_justify="left")
    table.add_column("client")
    table.add_column("groups (+ positive, - negative, ? erased)" if test.outcomes else "groups")
    table.add_column("P(malicious)", justify="right")
    table.add_column("verdict")
    table.add_column("truth")
    signs = {"0": "-", "1": "+", "?": "?"}
    for client in result.clients:
        marks = (f"{group}{signs[test.outcomes[group]] if test.outcomes else ''}" for group in client.groups)
        posterior = f"{client.posterior:.4f}" if isinstance(client.posterior, float) else "unknown"
        right = client.excluded == (client.truth == "malicious")
        truth = Text(client.truth or "", style="" if right else "bold red")
        style = "yellow" if client.excluded else ""
        table.add_row(Text(client.id), " ".join(marks) or "none", posterior, Text(client.verdict, style=style), truth)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if test.graded is not None:
        console.print(f"evidence: {evidence_line(test.graded)}", markup=False)


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
