"""A client's endpoint as bytes, for engines that start a fresh process per message."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from fedgt import strict_json
from fedgt.engine.nearness import AnsweredModel
from fedgt.engine.round_message import RoundMessage
from fedgt.errors import FedGTError, ProtocolError
from fedgt.foreign_text import plain
from fedgt.secagg import Link, RunTerms
from fedgt.secagg.frames import pack, unpack

_KIND = "suspended-endpoint"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SuspendedRound:
    """A round whose local model is still to be trained.

    Attributes:
        run: The name of the run.
        number: Of the round.
        purposes: What was answered in it.
        rows: The sums planned in it, as weights per client.
        models: The global model, and the center if there is one.
    """

    run: str
    number: int
    purposes: tuple[str, ...]
    rows: tuple[Mapping[str, float], ...]
    models: RoundMessage


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Suspended:
    """What `ClientEndpoint.suspend` keeps.

    Attributes:
        client: Whose it is.
        terms: What is pinned; what was agreed beforehand comes with the arguments.
        rounds: Run -> the latest round that was begun.
        later: Run -> in how many later stages it took part.
        models: The global models that were answered, if no journal keeps them.
        seed: Of their sketches.
        agreements: What was signed, in order, if no journal keeps it.
        session: The suspended session; empty if none is open.
        prekeys: Those of a coming round; empty if there are none.
        round: The round that is to be trained, if any.
    """

    client: str
    terms: RunTerms | None
    rounds: Mapping[str, int]
    later: Mapping[str, int]
    models: tuple[AnsweredModel, ...]
    seed: str
    agreements: tuple[Link, ...]
    session: bytes
    prekeys: bytes
    round: SuspendedRound | None

    def to_bytes(self) -> bytes:
        """One frame, never the same twice; the secrets of the session are in it in clear."""
        terms, state = self.terms, self.round
        header: dict[str, object] = {
            "kind": _KIND,
            "client": self.client,
            # A message that changes nothing, such as a spoilt one, must not leave the bytes that were used already.
            "nonce": secrets.token_hex(16),
            "rounds": dict(self.rounds),
            "later": dict(self.later),
            "models": [one.to_json() for one in self.models],
            "seed": self.seed,
            "agreements": [link.to_json().decode() for link in self.agreements],
            "session": len(self.session),
            "prekeys": len(self.prekeys),
            "terms": None if terms is None else terms.to_json(),
            "round": None
            if state is None
            else {
                "run": state.run,
                "number": state.number,
                "purposes": state.purposes,
                "rows": [dict(row) for row in state.rows],
            },
        }
        # The rows are as many as the groups: a design with thousands would outgrow a frame's header.
        known = json.dumps(header).encode()
        models = b"" if state is None else state.models.to_bytes()
        return pack({"kind": _KIND, "known": len(known)}, known, self.session, self.prekeys, models)

    @classmethod
    def from_bytes(cls, payload: bytes, *, client: str) -> "Suspended":
        """Read what `to_bytes` wrote.

        Raises:
            ProtocolError: If the bytes are not a suspended endpoint of this client.
        """
        header, body = unpack(payload, kind=_KIND)
        try:
            start = int(header["known"])
            known = strict_json.parse(bytes(body[:start]))
            if known["client"] != client:
                raise ProtocolError(f"client {client}: the suspended endpoint is that of {known['client']!r:.80}")
            middle = start + int(known["session"])
            stop = middle + int(known["prekeys"])
            terms, state = known["terms"], known["round"]
            if stop > len(body) or (state is None and stop < len(body)):
                raise ProtocolError(f"client {client}: the suspended endpoint is cut off, or something follows it")
            return cls(
                client=client,
                terms=None if terms is None else RunTerms.from_json(terms),
                rounds={run: int(number) for run, number in known["rounds"].items()},
                later={run: int(number) for run, number in known["later"].items()},
                models=tuple(AnsweredModel.from_json(line) for line in known["models"]),
                seed=f"{int(known['seed'], 16):064x}",
                agreements=tuple(Link.from_json(text) for text in known["agreements"]),
                session=bytes(body[start:middle]),
                prekeys=bytes(body[middle:stop]),
                round=None
                if state is None
                else SuspendedRound(
                    run=state["run"],
                    number=int(state["number"]),
                    purposes=tuple(state["purposes"]),
                    rows=tuple(state["rows"]),
                    models=RoundMessage.from_bytes(bytes(body[stop:])),
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, FedGTError):
                raise ProtocolError(f"client {client}: the suspended endpoint is not valid: {plain(error)}") from error
            raise ProtocolError(f"client {client}: the suspended endpoint cannot be read: {plain(error)}") from error
