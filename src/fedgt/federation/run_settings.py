"""The settings of a run as one flat table: kept beside its record, and compared when the run goes on."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from fedgt._version import __version__
from fedgt.federation.participants import Federation
from fedgt.federation.settings import DecodeSettings, RfaSettings, ScreenSettings
from fedgt.secagg.agreement import chain_of

HOW_IT_IS_DONE = ("sums.timeout_seconds",)
"""These may be changed when a run goes on: they change no sum and no verdict."""


def settings_of(
    federation: Federation,
    *,
    method: str,
    rounds: int,
    test_rounds: Collection[int],
    seed: int,
    screen: ScreenSettings,
    decode: DecodeSettings,
    rfa: RfaSettings | None,
    excluded: Collection[str],
) -> dict[str, Any]:
    """Sections and values as TOML has them; what is not set is left out.

    With credentials the registry stands there by its hash: clients with other keys are other clients.
    """
    registry = federation.credentials
    return {
        "fedgt": __version__,
        "name": federation.run,
        "method": method,
        "seed": seed,
        "privacy": federation.ledger.promised,
        "rounds": rounds,
        "test_rounds": sorted(test_rounds),
        "weighting": federation.weighting,
        "excluded": sorted(excluded),
        "registry": "none: anonymous mode" if registry is None else chain_of(registry.registry),
        "samples": dict(federation.samples),
        "screen": screen.model_dump(mode="json", exclude_none=True),
        "decode": decode.model_dump(mode="json", exclude_none=True),
        "sums": federation.sums.model_dump(mode="json", exclude_none=True),
        **({} if rfa is None else {"rfa": rfa.model_dump(mode="json", exclude_none=True)}),
        "inputs": dict(federation.inputs),
    }


def digest_of(settings: Mapping[str, Any]) -> str:
    """SHA-256 of all that decides about sums and verdicts."""
    compared = {key: value for key, value in settings.items() if key != "sums"}
    compared["sums"] = {key: value for key, value in settings["sums"].items() if f"sums.{key}" not in HOW_IT_IS_DONE}
    return hashlib.sha256(json.dumps(compared, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
