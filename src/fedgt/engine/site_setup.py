"""Who a site is, what it allows, and how it trains: what every engine's half at a site is made of."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedgt.engine.endpoint import ClientEndpoint, TrainedModel
from fedgt.errors import FedGTError, SpecError
from fedgt.secagg import ClientPolicy, Credentials, RunTerms, read_policy, read_private_key, read_registry, read_terms
from fedgt.types import Parameters

logger = logging.getLogger(__name__)

SITE_FILES = ("key", "registry", "policy", "terms", "journal")
"""The files by which a site says who it is and what it allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Who a site is and what it allows; the same for every message of a run.

    Attributes:
        client: The name under which the federation knows it. Addresses change, names do not.
        credentials: Its identity and the keys that it trusts. None is ANONYMOUS MODE, for simulations.
        policy: Limits that the server cannot override.
        terms: What was agreed for the run beforehand.
        journal: A file that remembers what was answered and signed over messages, runs and restarts; needed with
            credentials. Next to it stands a folder with one empty file per message, so that no suspended state is ever
            used twice.

    Examples:
        >>> from fedgt.engine.site_setup import Site
        >>> Site(client="ada").credentials is None  # anonymous mode, for simulations
        True
    """

    client: str
    credentials: Credentials | None = None
    policy: ClientPolicy | None = None
    terms: RunTerms | None = None
    journal: Path | None = None

    def require_memory(self, journal: str) -> None:
        """Check that a site with an identity has a journal.

        Args:
            journal: What the setting is called where the site sets it.

        Raises:
            SpecError: If it has none.
        """
        if self.credentials is not None and self.journal is None:
            raise SpecError(
                f"site {self.client} has an identity and no journal: what it has signed would be forgotten with the run, "
                f"and the next run could open what this one must not. Give {journal}, a file that only this site can write"
            )


def read_site(client: str, files: Mapping[str, Path | None], *, prefix: str = "") -> Site:
    """A site of the files that it names, any of `SITE_FILES`.

    Args:
        client: Its name.
        files: What a file is -> its path.
        prefix: Stands before the names of the settings, for messages.

    Raises:
        SpecError: If there is only one of key and registry, terms without them, or a file cannot be read.
    """
    key, registry, policy, terms, journal = (files.get(what) for what in SITE_FILES)
    credentials = None
    if key is not None and registry is not None:
        credentials = Credentials(identity=read_private_key(key, client), registry=read_registry(registry))
    elif key is not None or registry is not None:
        raise SpecError(
            f"{prefix}key and {prefix}registry belong together: a site with only one of them would be anonymous"
        )
    if terms is not None and credentials is None:
        raise SpecError(
            f"{prefix}terms needs {prefix}key and {prefix}registry: terms hold by the signatures of the clients"
        )
    return Site(
        client=client,
        credentials=credentials,
        terms=None if terms is None or credentials is None else read_terms(terms, credentials),
        policy=None if policy is None else read_policy(policy),
        journal=journal,
    )


def endpoint_of(
    site: Site,
    train: Callable[[Parameters, int], TrainedModel],
    *,
    inputs: Mapping[str, str],
    log: str,
    minimum_group_size: int = 2,
) -> ClientEndpoint:
    """The endpoint of a site; of what its training raises only the kind leaves it.

    Args:
        site: Who it is and what it allows.
        train: (global parameters, round) -> the trained model and its number of samples.
        inputs: See `ClientEndpoint`.
        log: Where the site's people find the words of an error.
        minimum_group_size: Refuse sums over fewer clients than this.
    """
    return ClientEndpoint(
        site.client,
        _Trainer(function=train, log=log),
        minimum_group_size=minimum_group_size,
        policy=site.policy,
        terms=site.terms,
        credentials=site.credentials,
        journal=site.journal,
        inputs=inputs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trainer:
    """The user's function as a `fedgt.engine.Client`."""

    function: Callable[[Parameters, int], TrainedModel]
    log: str

    def train(self, parameters: Parameters, *, round: int) -> TrainedModel:
        try:
            return self.function(parameters, round)
        except Exception as error:
            logger.exception("the training of round %d failed", round)
            # An engine sends the text to the server, and what training says may be data: only its kind leaves the site.
            raise FedGTError(f"its training failed with {type(error).__name__}; {self.log} says more") from None


def inputs_of(config: Mapping[str, bool | float | int | str]) -> dict[str, str]:
    """The configuration of a run as an input to training: "config" -> SHA-256; nothing for none.

    Args:
        config: The same at the server and at every site: `context.run_config` of Flower, the job's `config` of NVIDIA FLARE.

    Examples:
        >>> from fedgt.engine.site_setup import inputs_of
        >>> inputs_of({"learning-rate": 0.05}) == inputs_of({"learning-rate": 0.06})
        False
    """
    if not config:
        return {}
    content = json.dumps(sorted(config.items()), separators=(",", ":"))
    return {"config": hashlib.sha256(content.encode()).hexdigest()}
