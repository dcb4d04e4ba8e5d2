"""What the method cannot see, said where the verdicts are read."""

from collections.abc import Mapping
from typing import Any


def limits(result: Mapping[str, Any], *, simulation: bool, binary: bool) -> list[str]:
    """Sentences for this run: its method, its evidence and its privacy account."""
    said = []
    test = result["test"]
    if test is None:
        said.append(
            "No group test was made in this run, so nothing is known about any client; nobody was judged, and no client is "
            "shown to be harmless."
        )
    else:
        tested = {one["round"] for one in result["tests"]}
        watched = any(one["opened_for"] for one in result["tests"])
        always = tested >= {one["round"] for one in result["rounds"]}
        said += [_about_the_rounds(always=always, watched=watched), *_about_the_test(test, binary=binary)]
    said += [
        "Secure sums hide single updates. A client that sends different vectors to the groups of one round is noticed, but "
        "not always which client it was.",
        "An honest client with unusual data can look like an attacker. An exclusion is a statistical "
        "finding, not proof of intent.",
    ]
    if result["privacy"]["strict"] is not None:
        said.append(
            "The privacy number counts clients that a combination of opened sums mixes. Clients that work together with the "
            "server subtract their own updates, and lower it by one each."
        )
        said.append(
            "The disclosed share is an average over clients that differ equally and independently. Where they do not, such "
            "as when one client alone has a class, the server may know that client better."
        )
        said.append(
            "Sums of different rounds are sums of different local models. If updates hardly change from round to round, "
            "comparing rounds before and after an exclusion tells more about the excluded clients than one round does."
        )
    if simulation:
        said.append(
            "This was a simulation in one process: the attack, the data shares and the dropouts were chosen by the "
            "specification, and real attackers may act otherwise."
        )
    return said


def _about_the_rounds(*, always: bool, watched: bool) -> str:
    if always:
        return "Clients were tested in every round. One that attacks after the last of them is not found."
    if watched:
        return (
            "In every round a few sums were compared with those of earlier rounds, and clients were tested in the rounds "
            "named above. An attack that changes these sums too little is not found in the other rounds."
        )
    return "Clients were tested in the rounds named above. One that behaves well then and attacks later is not found."


def _about_the_test(test: Mapping[str, Any], *, binary: bool) -> list[str]:
    said = [
        "An attack that does not show on the server's validation data does not show in the test.",
    ]
    if binary:
        said += [
            "Each group answers with one bit. Different sets of clients explain the same bits, so with several attackers "
            "some are missed and some honest clients are suspected even if every answer is right.",
            "The screen looks for clusters, and noise can form clusters: it may call groups positive although nobody "
            "is malicious.",
            "The posteriors rest on assumed error rates of the test, which are not measured in the run.",
        ]
    else:
        said += [
            "Graded evidence looks for a line along which groups differ in proportion to their malicious members. Attackers "
            "who push in many different directions, or a majority of malicious clients, do not fit that picture.",
            "Few malicious clients whose poison is weak look like nobody malicious.",
        ]
        said += _about_the_number(test)
    if test["coefficients"]:
        largest = max(one for row in test["coefficients"] for one in row)
        said.append(
            f"In the sums of the test clients counted differently: each update was multiplied by a whole number up to "
            f"{largest}, which everybody knew. The privacy number and the shares count these real rows."
        )
    if "?" in test["outcomes"]:
        said.append(
            "Some groups have no outcome. What their members did in the test round shows only in their other groups."
        )
    if test["status"] not in ("decided", "nobody"):
        said.append(f"The decoder did not reach an ordinary decision: {test['reason']}.")
    return said


def _about_the_number(test: Mapping[str, Any]) -> list[str]:
    """That fewer than a minority of attackers were searched for, where it was so."""
    clients = len({client for group in test["groups"] for client in group})
    graded = test["graded"]
    largest = len(graded["count_posterior"]) - 1 if graded else 0
    if not 0 < largest < (clients - 1) // 2:
        return []
    return [f"At most {largest} malicious clients of {clients} were considered; more were not searched for."]
