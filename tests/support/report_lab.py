"""Run folders made by hand: real decisions about given outcomes, without training anything."""

import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from fedgt._version import __version__
from fedgt.decode import STRATEGIES, decode
from fedgt.design import Design, named_design
from fedgt.experiment import ExperimentSpec, make_spec
from fedgt.federation import exclude, from_outcomes
from fedgt.grouping import Grouping
from fedgt.record.result import RunResult, json_number
from fedgt.types import ErrorRates, Outcomes


def spec_of(
    clients: int, *, rounds: int = 3, overrides: Mapping[str, Any] | None = None, design: Design | None = None
) -> ExperimentSpec:
    """A specification that tests groups for one bit in round 2."""
    content: dict[str, Any] = {
        "privacy": 2,
        "federation": {"clients": clients, "rounds": rounds},
        "attack": {"malicious": 2},
        "screen": {"round": 2, "kind": "clusters"},
        "decode": {"max_malicious": 5, "strategy": "bayes"},
    }
    if design is not None:
        content["design"] = {"name": design.name, "matrix": design.matrix.tolist()}
    return make_spec(content, overrides)


def decided_result(
    spec: ExperimentSpec,
    *,
    outcomes: str = "1101?000",
    design: Design | None = None,
    names: Sequence[str] | None = None,
    simulation: bool = True,
    rounds: int = 3,
) -> dict[str, Any]:
    """`result.json` of a run whose group test in round 2 had the given outcomes."""
    matrix = named_design("bch-15x8") if design is None else design
    clients = tuple(f"client-{j:02d}" for j in range(matrix.clients))
    grouping = Grouping(design=matrix, clients=clients)
    observed = Outcomes.parse(outcomes)
    settings = spec.decode
    found = decode(
        matrix,
        observed,
        rates=ErrorRates(false_alarm=settings.false_alarm, misdetection=settings.misdetection),
        strategy=next(one for one in STRATEGIES if one == settings.strategy),
        largest=settings.max_malicious,
        method=settings.method,
    )
    decision = exclude(grouping, from_outcomes(grouping, observed, found), settings)
    malicious = set(clients[1:3]) if simulation else set()
    rng = np.random.default_rng(0)
    groups = [grouping.members(i) for i in range(matrix.groups)]
    aggregates = [_aggregate(1, "training", clients)]
    aggregates += [
        _aggregate(2, f"test-group-{i}", members, opened=outcomes[i] != "?") for i, members in enumerate(groups)
    ]
    kept = tuple(sorted(verdict.client for verdict in decision.verdicts if not verdict.excluded))
    aggregates += [_aggregate(number, "training", kept) for number in range(3, rounds + 1)]
    result: dict[str, Any] = {
        "schema_version": 1,
        "version": __version__,
        "spec_hash": spec.digest,
        "seed": spec.seed,
        "method": spec.method,
        "status": "finished",
        "reason": "",
        "clients": [
            {
                "id": one.client,
                "excluded": one.excluded,
                "verdict": one.verdict,
                "reason": one.reason,
                "posterior": json_number(one.posterior),
                "log_odds": json_number(one.log_odds),
                "groups": list(one.groups),
                "truth": ("malicious" if one.client in malicious else "benign") if simulation else None,
            }
            for one in decision.verdicts
        ],
        "rounds": [_round(number, matrix.groups, simulation=simulation) for number in range(1, rounds + 1)],
        "aggregates": aggregates,
        "privacy": {
            "promised": 2,
            "strict": 2,
            "cautious": 2,
            "with_training": 2,
            "overridden": False,
            "assumption": "",
        },
        "test": {
            "round": 2,
            "outcomes": outcomes,
            "truth": "".join(str(int(bool(malicious & set(g)))) for g in groups) if simulation else None,
            "estimated_malicious": found.estimated_malicious,
            "strategy": found.strategy,
            "status": found.status,
            "reason": decision.reason,
            "screen_status": "tested",
            "screen_reason": "made by hand",
            "utilities": [
                None if o == "?" else float(v) for o, v in zip(outcomes, rng.random(len(groups)), strict=True)
            ],
            "projection": [
                None if o == "?" else float(v) for o, v in zip(outcomes, rng.normal(size=len(groups)), strict=True)
            ],
            "clusters": [{"0": 0, "1": 1, "?": -1}[o] for o in outcomes],
            "design": matrix.name,
            "groups": [list(members) for members in groups],
        },
        "warnings": ["round 2, test: 1234567 entries of updates were clipped to +-8; raise the clip"],
        "cpu_seconds": 12.3456789,
    }
    result = RunResult.model_validate(result).model_dump(mode="json")
    result["tests"] = [result["test"]]
    return result if names is None else _renamed(result, dict(zip(clients, names, strict=True)))


def _renamed(content: Any, names: Mapping[str, str]) -> Any:
    """The result as somebody could write it who calls clients what no federation would."""
    if isinstance(content, dict):
        return {key: _renamed(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [_renamed(value, names) for value in content]
    return names.get(content, content) if isinstance(content, str) else content


def graded_result(spec: ExperimentSpec) -> dict[str, Any]:
    """`result.json` of a run with two test rounds and graded evidence."""
    result = decided_result(spec, outcomes="11010000")
    rng = np.random.default_rng(3)
    losses = rng.random(8).tolist()
    last = result["test"] | {
        "kind": "graded",
        "outcomes": "",
        "utilities": [],
        "clusters": [],
        "strategy": "minimum-cost",
        "graded": {
            "against_nobody": 21.5,
            "count_posterior": [1e-9, 0.1, 0.875, 0.025],
            "best_sets": [
                {"clients": ["client-01", "client-02"], "probability": 0.75},
                {"clients": ["client-01"], "probability": None},
            ],
            "attacks": 1,
            "signal": 34.25,
            "effective_features": 12.0,
            "loss": losses,
            "label": {"kind": "targeted", "labels": [9], "rises": [1.5], "p_values": [0.002]},
        },
    }
    first = last | {"round": 1, "status": "undecided", "reason": "another test round is asked for"}
    return result | {"test": last, "tests": [first, last]}


def untested_result(spec: ExperimentSpec) -> dict[str, Any]:
    """`result.json` of a run without a group test that failed in its second round."""
    result = decided_result(spec)
    for client in result["clients"]:
        client |= {
            "excluded": False,
            "verdict": "untested",
            "reason": "no group test was made",
            "posterior": None,
            "log_odds": None,
            "groups": [],
        }
    return result | {
        "test": None,
        "tests": [],
        "method": "no-defence",
        "status": "failed",
        "reason": "round 2 failed: <b>nobody</b> & nothing",
        "rounds": result["rounds"][:1],
        "aggregates": result["aggregates"][:1],
        "warnings": [],
    }


def write_folder(folder: Path, result: Mapping[str, Any], spec: ExperimentSpec | None) -> Path:
    """A run folder as `fedgt run --out` leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    if spec is not None:
        (folder / "spec.toml").write_text(spec.to_toml(), encoding="utf-8")
    return folder


def _aggregate(number: int, purpose: str, members: Sequence[str], *, opened: bool = True) -> dict[str, Any]:
    members = sorted(members)
    return {
        "round": number,
        "purpose": purpose,
        "members": members if opened else [],
        "weights": [90.0 + (j % 2) for j in range(len(members))] if opened else [],
        "status": "open" if opened else "erased",
        "reason": "" if opened else "masked: too few clients are left",
        "dropped": {} if opened else dict.fromkeys(members, "masked: has left"),
    }


def _round(number: int, groups: int, *, simulation: bool) -> dict[str, Any]:
    return {
        "round": number,
        "top1_accuracy": 0.8 + 0.1 * (1 - 0.5**number),
        "balanced_accuracy": 0.79 + 0.1 * (1 - 0.5**number),
        "attack_accuracy": 0.5**number if simulation else None,
        "secure_sums": groups if number == 2 else 1,
        "bytes_up": 1_234_567,
        "bytes_down": 765_432,
        "participants": 15,
        "purpose": "test" if number == 2 else "training",
    }


class Page(HTMLParser):
    """What a page says: (path, exact value or None, text) of each marked element, the text outside of them, and the tags."""

    _VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: list[tuple[str, str | None, str]] = []
        self.outside: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[tuple[str, int | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag in self._VOID:
            return
        place = None
        if "data-field" in attributes:
            place = len(self.fields)
            self.fields.append((str(attributes["data-field"]), attributes.get("data-value"), ""))
        self._open.append((tag, place))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if any(tag == "style" for tag, _ in self._open):
            return
        places = [place for _, place in self._open if place is not None]
        if places:
            path, exact, text = self.fields[places[-1]]
            self.fields[places[-1]] = (path, exact, text + data)
        else:
            self.outside.append(data)
