"""The first page of a report, in plain words: for somebody who answers for the federation and knows no statistics.

What was decided, how sure it is, what could have been missed, what the server learned, and what to do now. It says what was
seen and presumes nobody guilty. Every sentence is a value of `report.json`; names stand in lists of their own.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from fedgt.evidence.judge import MORE
from fedgt.record.verdict_words import MEANINGS

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def first_page(
    result: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    recheck: Mapping[str, Any],
    privacy: Mapping[str, Any],
) -> dict[str, Any]:
    """The parts of the page.

    Returns:
        `headline`, `lead`, `decided` (one entry a word that was said, with its clients), and lists of sentences: `sure`,
        `missed`, `learned`, `next`.
    """
    decided = _decided(verdicts)
    return {
        "headline": _headline(result, verdicts),
        "lead": _lead(result, verdicts),
        "decided": decided,
        "sure": _sure(result, verdicts, recheck),
        "missed": _missed(result, verdicts),
        "learned": _learned(privacy),
        "next": _next(result, decided, privacy),
    }


def power_of(test: Mapping[str, Any]) -> dict[int, float | None]:
    """Attackers -> the smallest common push that the test would have named; None where it would name none."""
    return {one["attackers"]: one["shift"] for one in test["power"]}


def strongest_test(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The test that sees the weakest attack; None where that is not known of any."""
    known = [one for one in result["tests"] if power_of(one)]
    return min(known, key=lambda one: min(_size(shift) for shift in power_of(one).values()), default=None)


def _headline(result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    out = sum(1 for one in verdicts if one["excluded"])
    if out:
        return f"{out} of {len(verdicts)} clients {_was(out)} left out"
    if result["test"] is None:
        return "Nobody was tested in this run"
    look = sum(1 for one in verdicts if one["verdict"] != "keep")
    if look:
        return f"Nobody was left out, and {_many(look, 'client needs', 'clients need')} a look"
    return f"None of {len(verdicts)} clients was left out"


def _lead(result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> str:
    if result["test"] is None:
        return "No group test was held, so nothing is known about any client. Who was left out was so from the start."
    if any(one["excluded"] for one in verdicts):
        return (
            "fedgt compared sums over groups of clients. It left out clients whose groups differ from the others as if "
            "these clients pushed them. This is a finding about models. It does not say why they differ, nor that anybody "
            "meant it."
        )
    return (
        "fedgt compared sums over groups of clients and left nobody out. This is no proof that nobody does harm: what "
        "the tests could have missed stands below."
    )


def _decided(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each word and whether its clients are left out, the most suspicious first."""
    rows = []
    for word, meaning in MEANINGS.items():
        for left_out in (True, False):
            clients = [one["client"] for one in verdicts if one["verdict"] == word and one["excluded"] == left_out]
            if clients:
                rows.append({"word": word, "left_out": left_out, "clients": clients, "meaning": meaning})
    return rows


def _sure(result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]], recheck: Mapping[str, Any]) -> list[str]:
    if result["test"] is None:
        return ["Nothing was tested, so there is nothing to be sure of."]
    said = []
    named = [_value(one["posterior"]) for one in verdicts if one["verdict"] == "exclude"]
    if named:
        least = min(named)
        each = "of the client" if len(named) == 1 else "of each client"
        said.append(
            f"fedgt is {_chance(least)} sure {each} with the word 'exclude', if its assumptions hold for your data."
        )
        said.append(
            "How often it was right at such a certainty was measured on public data, not on yours. Clients that differ "
            "much, such as hospitals with different cameras, make it look surer than it is."
        )
    if unsure := sum(1 for one in verdicts if one["verdict"] == "exclude (uncertain)"):
        said.append(
            f"{_many(unsure, 'client was', 'clients were').capitalize()} left out although the tests cannot tell. "
            f"{'It' if unsure == 1 else 'Each of them'} may well be honest."
        )
    if not named and not unsure:
        said.append("No client stood out enough to be named.")
    if any(MORE in one["reason"] for one in result["tests"]):
        said.append("More is going on in the sums than the named clients explain, so nobody is cleared.")
    if recheck["status"] == "same":
        said.append("The decision was made once more from what is on record, and came out the same.")
    elif recheck["status"] == "not-made":
        said.append(f"The decision was not made once more for this report: {recheck['reason']}.")
    else:
        said.append("Made once more from what is on record, the decision comes out differently. Do not rely on it.")
    return said


def _missed(result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    tests = result["tests"]
    if not tests:
        return ["Everything: without a test, no attack is seen."]
    said = []
    best = strongest_test(result)
    if best is None:
        said.append("How weak an attack these tests would have seen is not known.")
    else:
        said.append(
            "A weak attack is missed. Call how far an attack moves a client's model its push, and say that honest models "
            "typically lie 1 from their mean."
        )
        which = "the test" if len(tests) == 1 else f"the strongest of {len(tests)} tests (round {best['round']})"
        named = {attackers: shift for attackers, shift in power_of(best).items() if shift is not None}
        if named:
            pushes = ", and ".join(f"{_together(one)} from {shift:.2g} on" for one, shift in named.items())
            said.append(f"In 9 of 10 calculated cases {which} names {pushes}.")
        said += [
            f"{which.capitalize()} does not name {_together(one)} in 9 of 10 calculated cases, however hard they push."
            for one in power_of(best)
            if one not in named
        ]
        if any(one["verdict"] == "keep" for one in verdicts):
            said.append(
                "Whoever pushes less may be among those who were kept. The word 'keep' says that nothing was seen, not that "
                "nothing is there."
            )
    last = max(one["round"] for one in tests)
    if any(one["opened_for"] for one in tests):
        said.append(
            f"After round {last}, the last one with a test, an attack that changes the first sums little is not found."
        )
    else:
        said.append(f"An attack that begins after round {last}, the last one with a test, is not found.")
    said.append("An attack that does not show on the server's own validation data is not found.")
    if untested := sum(1 for one in verdicts if one["verdict"] == "untested"):
        said.append(f"{_many(untested, 'client was', 'clients were').capitalize()} not tested at all.")
    return said


def _learned(privacy: Mapping[str, Any]) -> list[str]:
    if privacy["strict"] is None:
        return ["No sum was opened, so the server has learned nothing about any client."]
    opened = sum(1 for row in privacy["aggregates"] if row["status"] == "open")
    said = [
        f"The server has read {opened} sums. Of those about one and the same model, every combination mixes "
        f"{privacy['strict']} clients or more; {privacy['promised']} were promised."
    ]
    across = [one for one in (privacy["cautious"], privacy["with_training"]) if one is not None]
    if across and min(across) < privacy["strict"]:
        said.append(
            f"If clients' models hardly changed from round to round, sums of several rounds could be combined. The worst "
            f"combination of all that was opened would then mix {_many(min(across), 'client', 'clients')}."
        )
    if privacy["colluders"]:
        helpers = privacy["colluders"]
        said.append(
            f"If {_many(helpers, 'client', 'clients')} helped a server that cheats, all these numbers would be lower by "
            f"{_number(helpers)}."
        )
    shares = [privacy[key] for key in ("share_largest", "share_cautious_largest") if privacy[key] is not None]
    if shares:
        helped = privacy["share_helped"]
        more = f", and {_percent(helped)} if a client helped the server" if privacy["colluders"] and helped else ""
        said.append(
            f"Of what sets one client apart from the mean, the sums tell {_percent(max(shares))} at most{more}. The mean "
            f"over the clients is {_percent(privacy['share_mean'])}."
        )
    return said


def _next(result: Mapping[str, Any], decided: Sequence[Mapping[str, Any]], privacy: Mapping[str, Any]) -> list[str]:
    words = {(one["word"], one["left_out"]) for one in decided}
    said = []
    if privacy["check"]["status"] == "different":
        said.append(
            "Open no further sum before somebody has understood why the privacy account does not fit the record."
        )
    if result["status"] != "finished":
        said.append("The run ended early. Remove the cause that is named above, and begin a new run in another folder.")
    if ("exclude", True) in words:
        said.append(
            "Ask those who were left out to check their labels, their data and their software before anybody is blamed. A "
            "mistake looks like an attack."
        )
    if ("exclude (uncertain)", True) in words:
        said.append("Decide yourselves about the uncertain exclusions. A run with a further test may tell.")
    if any(word == "suspicious" for word, _ in words):
        said.append("Look at the data of the suspicious clients. Whether they take part is decided by your policy.")
    if ("undecided", False) in words:
        said.append("The undecided clients are still in. A run with more tests or larger validation data may tell.")
    if any(word == "untested" for word, _ in words) and result["test"] is not None:
        said.append("Test the untested clients before you rely on their work.")
    if result["test"] is None:
        said.append("Hold a test if you must know whether anybody does harm.")
    elif {word for word, _ in words} == {"keep"}:
        said.append("Nothing has to be done now.")
    if result["test"] is not None:
        said.append("Test again from time to time: a client may begin to do harm later.")
    said.append("This report names clients. Give it to those only who may know.")
    return said


def _together(attackers: int) -> str:
    return "a client alone" if attackers == 1 else f"{_number(attackers)} clients together"


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def _many(number: int, one: str, more: str) -> str:
    return f"{_number(number)} {one if number == 1 else more}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _chance(probability: float) -> str:
    if not isfinite(probability):
        return "not"
    return "more than 99.9 %" if probability > 0.999 else f"{100 * probability:.1f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _size(shift: float | None) -> float:
    return float("inf") if shift is None else float(shift)


def _value(value: Any) -> float:
    return float("nan") if value is None else float(value)
