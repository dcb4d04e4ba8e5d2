"""From a run record to the content of `report.json`: everything that the page says, as plain JSON.

The page is rendered from this object and from nothing else. Knowledge that only a simulation has (who is really malicious,
what the attack achieved, what the attackers were told to do) is left out unless the record is one of a simulation.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedgt._version import __version__
from fedgt.record.verdict_words import MEANINGS
from fedgt.report.charts import curves, scatter
from fedgt.report.first_page import first_page
from fedgt.report.first_picture import first_picture
from fedgt.report.limits import limits
from fedgt.report.privacy_part import privacy_account
from fedgt.report.reading import RunRecord, read_run
from fedgt.report.recheck import is_binary, recheck

REPORT_SCHEMA_VERSION = 1

OUTCOME_WORDS = {"0": "negative", "1": "positive", "?": "erased"}

_SIMULATION_SECTIONS = ("attack", "faults")
_ORDER = {word: place for place, word in enumerate(MEANINGS)}


def audit(folder: Path) -> dict[str, Any]:
    """The content of the report of a run folder.

    Args:
        folder: As `fedgt run --out` or `FederationRun(folder=...)` leaves it. Only read.

    Returns:
        The object that `report.json` holds: `fedgt.report.schema.Report`; docs/howto/read-a-report.md explains its parts.

    Raises:
        SpecError: If the folder holds no usable result.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fedgt.experiment import make_spec, run_into
        >>> from fedgt.report import audit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_into(make_spec({"privacy": 4, "federation": {"rounds": 1}}), Path(folder))
        ...     report = audit(Path(folder))
        >>> report["simulation"]
        True
    """
    return audit_record(read_run(folder))


def audit_record(record: RunRecord) -> dict[str, Any]:
    """The same for a record that was read already."""
    result = record.result
    simulation = is_simulation(result)
    setup = record.setup
    known = (None, None) if setup is None else (setup.decode, setup.screen)
    checked = recheck(result, known[0], record.spec_matches, known[1], record.kept)
    verdicts = _verdicts(result, checked, simulation=simulation)
    test = None if result["test"] is None else _test(record, checked, simulation=simulation)
    attacked = simulation and any(client["truth"] == "malicious" for client in result["clients"])
    rounds = [_round(row, attacked=attacked) for row in result["rounds"]]
    again = {key: checked[key] for key in ("status", "reason", "largest_difference")}
    privacy = privacy_account(result)
    return {
        "schema_version": REPORT_SCHEMA_VERSION,
        "simulation": simulation,
        "first_page": first_page(result, verdicts, again, privacy),
        "run": _run(record),
        "summary": _summary(result, verdicts, rounds) | (_truth(verdicts) if simulation else {}),
        "verdicts": verdicts,
        "test": test,
        "tests": [
            {key: one[key] for key in ("round", "design", "status", "outcomes", "reason", "opened_for")}
            | {"groups": len(one["groups"]), "power": one["power"]}
            for one in result["tests"]
        ],
        "recheck": again,
        "rounds": rounds,
        "privacy": privacy,
        "incidents": _incidents(result),
        "communication": _communication(result),
        "limits": limits(result, simulation=simulation, binary=test is not None and test["binary"]),
        "specification": _specification(record, simulation=simulation),
        "figures": {
            "first": first_picture(result, verdicts),
            "curves": curves(rounds, [one["round"] for one in result["tests"]]),
            "scatter": None if test is None else scatter(test["groups"]),
        },
    }


def is_simulation(result: Mapping[str, Any]) -> bool:
    """Whether the record says who is really malicious, which only a simulation knows."""
    test = result["test"]
    return any(client["truth"] for client in result["clients"]) or bool(test and test["truth"])


def _run(record: RunRecord) -> dict[str, Any]:
    result = record.result
    setup = record.setup
    return {
        "version": result["version"],
        "report_version": __version__,
        "method": result["method"],
        "status": result["status"],
        "reason": result["reason"],
        "seed": result["seed"],
        "spec_hash": result["spec_hash"],
        "spec_matches": record.spec_matches,
        "plan_hash": record.plan_hash,
        "result_hash": record.result_hash,
        "rounds_done": len(result["rounds"]),
        "rounds_planned": result["rounds_planned"] or (None if setup is None else setup.rounds),
        "measured_on": result["measured_on"],
        "data": None if setup is None else setup.data,
        "cpu_seconds": result["cpu_seconds"],
    }


def _summary(
    result: Mapping[str, Any], verdicts: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    opened = [row for row in result["aggregates"] if row["status"] == "open"]
    last = rounds[-1] if rounds else None
    return {
        "clients": len(verdicts),
        "excluded": [one["client"] for one in verdicts if one["excluded"]],
        "excluded_count": sum(1 for one in verdicts if one["excluded"]),
        "undecided_count": sum(1 for one in verdicts if one["verdict"] == "undecided"),
        "uncertain_count": sum(1 for one in verdicts if one["verdict"] == "exclude (uncertain)"),
        "suspicious_count": sum(1 for one in verdicts if one["verdict"] == "suspicious"),
        "untested_count": sum(1 for one in verdicts if one["verdict"] == "untested"),
        "opened": len(opened),
        "asked": len(result["aggregates"]),
        "top1_accuracy": None if last is None else last["top1_accuracy"],
        "warnings": len(result["warnings"]),
    }


def _truth(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How right it was, which only a simulation knows."""
    malicious = [one for one in verdicts if one["truth"] == "malicious"]
    return {
        "really_malicious": len(malicious),
        "found": sum(1 for one in malicious if one["excluded"]),
        "wronged": sum(1 for one in verdicts if one["excluded"] and one["truth"] == "benign"),
    }


def _verdicts(result: Mapping[str, Any], checked: Mapping[str, Any], *, simulation: bool) -> list[dict[str, Any]]:
    """The most suspicious first."""
    outcomes = result["test"]["outcomes"] if result["test"] else ""  # empty for graded evidence
    rows = []
    for column, client in enumerate(result["clients"]):
        row = {
            "client": client["id"],
            **{key: client[key] for key in ("verdict", "excluded", "reason", "posterior", "log_odds", "decided_in")},
            "groups": [
                {"group": group, "outcome": OUTCOME_WORDS[outcomes[group]] if outcomes else None}
                for group in client["groups"]
            ],
            **_sides(checked["groups"][column] if checked["groups"] else None),
        }
        if simulation:
            row["truth"] = client["truth"]
        rows.append(row)
    return sorted(rows, key=lambda row: (_ORDER[row["verdict"]], -_value(row["posterior"])))


def _sides(parts: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Which groups speak against the client and which for it, the strongest first; None where it was not computed."""
    if parts is None:
        return {"against": None, "for": None}
    spoken = [
        {"group": one["group"], "outcome": OUTCOME_WORDS[one["outcome"]], "change": one["change"]}
        for one in sorted(parts, key=lambda one: -abs(_value(one["change"])))
    ]
    return {
        "against": [one for one in spoken if _value(one["change"]) < 0],
        "for": [one for one in spoken if _value(one["change"]) > 0],
    }


def _test(record: RunRecord, checked: Mapping[str, Any], *, simulation: bool) -> dict[str, Any]:
    result = record.result
    test = result["test"]
    really = {
        int(row["purpose"].rpartition("-")[2]): row
        for row in result["aggregates"]
        if row["round"] == test["round"]
        and row["purpose"].startswith("test-group-")
        and row["purpose"].rpartition("-")[2].isdigit()
    }
    graded = test["graded"]
    groups = []
    for group, members in enumerate(test["groups"]):
        opened = really.get(group)
        row = {
            "group": group,
            "outcome": OUTCOME_WORDS[test["outcomes"][group]] if test["outcomes"] else None,
            "members": list(members),
            "size": len(members),
            "really": list(opened["members"]) if opened and opened["status"] == "open" else None,
            "utility": _entry(test["utilities"], group),
            "projection": _entry(test["projection"], group),
            "cluster": _entry(test["clusters"], group),
            "loss": _entry(graded["loss"], group) if graded else None,
            "coefficients": _entry(test["coefficients"], group),
        }
        if simulation and test["truth"]:
            row["truth"] = "contaminated" if test["truth"][group : group + 1] == "1" else "clean"
        groups.append(row)
    return {
        **{key: test[key] for key in ("round", "design", "strategy", "status", "reason", "estimated_malicious")},
        **{key: test[key] for key in ("screen_status", "screen_reason", "outcomes")},
        "binary": is_binary(test),
        "groups": groups,
        "clients": [client["id"] for client in result["clients"]],
        "matrix": [[group in client["groups"] for client in result["clients"]] for group in range(len(test["groups"]))],
        "nobody": checked["nobody"],
        "graded": _graded(graded) if graded else None,
        "sets": [dict(one) for one in graded["best_sets"]] if graded else checked["sets"],
    }


def _graded(graded: Mapping[str, Any]) -> dict[str, Any]:
    label = graded["label"]
    return {
        **{key: graded[key] for key in ("against_nobody", "attacks", "signal", "effective_features")},
        "counts": [
            {"malicious": number, "probability": probability}
            for number, probability in enumerate(graded["count_posterior"])
        ],
        "label": None
        if label is None
        else {
            "kind": label["kind"],
            "classes": [
                {"label": one, "rise": rise, "p_value": p}
                for one, rise, p in zip(label["labels"], label["rises"], label["p_values"], strict=False)
            ],
        },
    }


def _round(row: Mapping[str, Any], *, attacked: bool) -> dict[str, Any]:
    """Where nobody attacks, how often an attack had its way is no number."""
    return {key: value for key, value in row.items() if attacked or key != "attack_accuracy"}


def _incidents(result: Mapping[str, Any]) -> dict[str, Any]:
    dropouts: dict[tuple[int, str, str], list[str]] = {}
    for row in result["aggregates"]:
        for client, what in row["dropped"].items():
            dropouts.setdefault((row["round"], client, what), []).append(row["purpose"])
    return {
        "dropouts": [
            {"round": number, "client": client, "what": what, "sums": sums}
            for (number, client, what), sums in sorted(dropouts.items())
        ],
        "absent": _absent(result),
        "not_opened": [
            {key: row[key] for key in ("round", "purpose", "status", "reason")}
            for row in result["aggregates"]
            if row["status"] != "open"
        ],
        "warnings": list(result["warnings"]),
    }


def _absent(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Clients that should have taken part in a round and appear in none of its sums, neither as members nor as dropped."""
    if result["method"] == "oracle":  # it leaves the attackers out from the start
        return []
    clients = {client["id"] for client in result["clients"]}
    left_out = {client["id"]: client["decided_in"] for client in result["clients"] if client["excluded"]}
    # A record that does not say in which round a client was left out: the first test gives the benefit.
    tested = min((one["round"] for one in result["tests"]), default=None)
    # A round that was lost says nothing about who was there.
    held = {row["round"]: row["participants"] for row in result["rounds"]}
    seen: dict[int, set[str]] = {}
    for row in result["aggregates"]:
        if row["round"] in held:
            seen.setdefault(row["round"], set()).update(row["members"], row["dropped"])
    clients -= set(left_out) - set().union(*seen.values())  # left out from the beginning
    absent = []
    for number, there in sorted(seen.items()):
        since = {client: tested if named is None else named for client, named in left_out.items()}
        expected = clients - {client for client, named in since.items() if named is not None and number > named}
        # A further test has no row for clients that are decided: they are there all the same.
        if held[number] < len(expected) and (missing := sorted(expected - there)):
            absent.append({"round": number, "clients": missing})
    return absent


def _communication(result: Mapping[str, Any]) -> dict[str, Any]:
    rounds = result["rounds"]
    total = {key: sum(row[key] for row in rounds) for key in ("secure_sums", "bytes_up", "bytes_down")}
    purposes = list(dict.fromkeys(row["purpose"] for row in rounds))
    return {
        **total,
        "by_purpose": [
            {
                "purpose": purpose,
                "rounds": sum(1 for row in rounds if row["purpose"] == purpose),
                **{key: sum(row[key] for row in rounds if row["purpose"] == purpose) for key in total},
            }
            for purpose in purposes
        ],
    }


def _specification(record: RunRecord, *, simulation: bool) -> dict[str, Any]:
    if record.setup is None or record.setup.file != "spec.toml":
        return {"toml": "" if record.setup is None else record.setup.text, "commands": []}
    text = record.setup.text
    if not simulation:
        content = tomllib.loads(text)
        text = tomli_w.dumps({key: value for key, value in content.items() if key not in _SIMULATION_SECTIONS})
    return {
        "toml": text,
        "commands": [
            f"fedgt --version    # must be {record.result['version']}: from its checkout or wheel; no package index has it",
            "fedgt run spec.toml --out again",
            "fedgt report again",
        ],
    }


def _entry(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _value(value: Any) -> float:
    return float("-inf") if value is None else float(value)
