"""What has been revealed, and what may still be: the round asks here *before* it opens a sum.

Two accounts (docs/privacy.md has the argument).

* *Strict*: every sum opened about one set of local models, stacked; a sum that would push the real minimum support r below
  the promise, or a client's disclosed share above its limit, is refused.
* *Cautious*: the rows of all test rounds, as if the clients' updates repeated from round to round. It gates further test
  rows only. Training sums are not in it: the sum over everybody in one round minus the sum over the kept clients of the
  next has the excluded clients as its support, in any federated learning that drops a client.

A permitted sum counts as revealed from the moment of the permission, whether or not its opening succeeds. A ledger that is
kept in a file is on the disk before a permission is given, so that a server that starts again goes on with the account.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedgt import strict_json
from fedgt.defaults import NO_LIMIT
from fedgt.durable_file import locked, write_durably
from fedgt.errors import SpecError
from fedgt.foreign_text import plain
from fedgt.ids import require_distinct_ids
from fedgt.privacy.disclosed_share import MAX_SETS, can_try, disclosed_share, weights_behind
from fedgt.privacy.kept_sum import largest_kept_sum
from fedgt.privacy.stated import PrivacyAccount, privacy_account
from fedgt.privacy.support import Support, minimum_support
from fedgt.text_file import read_content
from fedgt.types import FloatArray, as_count

_log = logging.getLogger(__name__)

_VERSION = 1
_LARGEST_FILE = 2**28

_Rows: TypeAlias = dict[bytes, FloatArray]  # by their bytes: a row that is known adds nothing

Row = Mapping[str, float]
"""One aggregate as client -> real weight in the sum; clients left out have weight 0."""


class Ledger:
    """The account of one run, or of several about the same data. It only grows; there is no way to take a row back.

    Examples:
        >>> from fedgt import Ledger
        >>> ledger = Ledger(clients=["ada", "bob", "cleo", "dan"], promised=2)
        >>> everybody = {"ada": 1, "bob": 1, "cleo": 1, "dan": 1}
        >>> ledger.permit([everybody], models="round 1", test=False)
        (None,)
        >>> without_dan = {"ada": 1, "bob": 1, "cleo": 1}
        >>> (refusal,) = ledger.permit([without_dan], models="round 1", test=False)
        >>> print(refusal)
        a combination of what would be revealed about these local models mixes only 1 client (dan), the promise is 2
    """

    def __init__(
        self, *, clients: Sequence[str], promised: int, largest_share: float = NO_LIMIT, colluders: int = 0
    ) -> None:
        """Open an account.

        Args:
            clients: Every client id, in any order.
            promised: The promised r: no combination of what is revealed mixes fewer clients.
            largest_share: What is opened about one set of local models explains no larger share of what is particular to a
                client; 1 does not limit it.
            colluders: How many clients may help the server to that share.

        Raises:
            SpecError: If an id repeats, cannot be one or looks like another; if the promise is not between 1 and
                the number of clients; if the limit of the share is not above 0 and at most 1, or too many may collude for it
                to be computed.
        """
        as_count(promised, "privacy")
        if len(set(clients)) != len(clients):
            raise SpecError("client ids must be unique: one participant registered twice")
        require_distinct_ids(clients)
        if not 1 <= promised <= len(clients):
            raise SpecError(
                f"privacy = {promised}; with {len(clients)} clients a promise from 1 (single models may be seen) to "
                f"{len(clients)} (only the sum over everybody) is needed"
            )
        if not 0 < largest_share <= 1:
            raise SpecError(f"largest_share = {largest_share}; above 0, and at most 1 (no limit), is needed")
        if colluders < 0:
            raise SpecError(f"{colluders} colluders; 0 or more are needed")
        if largest_share < 1 and not can_try(len(clients), colluders):
            raise SpecError(
                f"largest_share = {largest_share} with {colluders} colluders of {len(clients)} clients: more than "
                f"{MAX_SETS} sets of colluders would have to be tried; allow for fewer colluders, or promise no share"
            )
        self._column = {client: j for j, client in enumerate(sorted(clients))}
        self._promised = promised
        self._largest_share = float(largest_share)
        self._colluders = min(colluders, len(clients) - 1)
        self._strict: dict[str, _Rows] = {}
        self._tests: _Rows = {}
        self._training: _Rows = {}
        self._overridden = False
        self._path: Path | None = None
        self._weights = np.zeros(len(self._column))

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Take the announced weights of clients, for the shares: a row has them times the coefficients of its sum.

        They are no part of the account, and of no file: whoever goes on with it announces them again. Without them a
        client counts with the smallest weight that it has in a sum.

        Args:
            weights: Client -> its weight in every mean. Clients that the ledger does not know are left out.
        """
        for client, weight in weights.items():
            if client in self._column:
                self._weights[self._column[client]] = max(weight, 0)

    @property
    def promised(self) -> int:
        """The promised r."""
        return self._promised

    @property
    def largest_share(self) -> float:
        """The promised limit of a client's share; 1 is none."""
        return self._largest_share

    def permit(self, rows: Sequence[Row], *, models: str, test: bool, override: bool = False) -> tuple[str | None, ...]:
        """Ask whether sums may be opened; those permitted are on record from now on.

        Rows are considered in the given order: when they cannot all be opened, each is added if the promise still holds
        with those before it.

        Args:
            rows: The real weights of the sums with the members who really took part; an empty row stands for a group
                that has no sum and is passed through as refused.
            models: Names the set of local models, such as the hash of the global model that they were trained from: sums of
                the same local models share an account.
            test: Whether these are test rows, which the cautious account gates as well.
            override: The user accepts, by name, that the promise is broken by these sums. Everything is permitted and
                the account says so.

        Returns:
            For each row None when it may be opened, else the reason why not.

        Raises:
            SpecError: If the ledger is kept in a file that cannot be read or written: nothing may be opened then.
        """
        vectors = [self._vector(row) for row in rows]
        with ExitStack() as held:
            if self._path is not None:
                held.enter_context(locked(self._path))
                # What another process was permitted meanwhile is opened, too.
                self.merge(Ledger.load(self._path))
            verdicts, opened, overridden = self._decide(vectors, models=models, test=test, override=override)
            if self._path is not None:
                after = self._empty()
                after.merge(self)
                after._record(opened, models=models, test=test, overridden=overridden)
                write_durably(self._path, after.to_json())
            self._record(opened, models=models, test=test, overridden=overridden)
        return verdicts

    def foresee(self, rows: Sequence[Row], *, models: str, test: bool) -> tuple[str | None, ...]:
        """What `permit` would say to these sums by what is known here; nothing is recorded, and nothing permitted.

        Args:
            rows: As in `permit`.
            models: As in `permit`.
            test: As in `permit`.
        """
        return self._decide([self._vector(row) for row in rows], models=models, test=test, override=False)[0]

    def _decide(
        self, vectors: Sequence[FloatArray], *, models: str, test: bool, override: bool
    ) -> tuple[tuple[str | None, ...], list[FloatArray], bool]:
        """For each row the verdict; the rows to open; whether an override opened one of them."""
        asked = [i for i, vector in enumerate(vectors) if vector.any()]
        verdicts: list[str | None] = ["no member of the group took part"] * len(vectors)
        overridden = False
        accounts = self._accounts(models, test=test)
        if asked and self._breach(accounts, [vectors[i] for i in asked]) is None:
            for i in asked:
                verdicts[i] = None
        else:
            granted: list[FloatArray] = []
            for i in asked:
                breach = self._breach(accounts, [*granted, vectors[i]])
                if breach is not None and override:
                    _log.warning("opened below the promise, as the specification asks: %s", breach)
                    overridden = True
                    breach = None
                verdicts[i] = breach
                if breach is None:
                    granted.append(vectors[i])
        return tuple(verdicts), [vectors[i] for i in asked if verdicts[i] is None], overridden

    def _record(self, opened: Iterable[FloatArray], *, models: str, test: bool, overridden: bool) -> None:
        rows = {row.tobytes(): row for row in opened}
        self._strict.setdefault(models, {}).update(rows)
        (self._tests if test else self._training).update(rows)
        self._overridden |= overridden

    def largest_part(self, row: Row, *, models: str) -> tuple[str, ...] | None:
        """Of whom the largest part of a sum that may still be opened about a set of local models is; nothing is recorded.

        Of all, if nothing was opened about them or the promise allows. After other sums about the same local models, such as
        those of a test that left the global model as it was, a few clients must sit out, or the difference of two sums is
        too small.

        Args:
            row: The weights of the sum.
            models: Names the set of local models, as in `permit`.

        Returns:
            The clients, sorted; None if no part may be opened.
        """
        vector = self._vector(row)
        strict = self._strict.get(models, {})
        if not strict or self._breach([("these local models", strict)], [vector]) is None:
            return tuple(sorted(client for client, weight in row.items() if weight))
        clients = sorted(self._column)
        found = largest_kept_sum(
            np.array(list(strict.values())).reshape(-1, len(clients)),
            weights=np.where(vector > 0, vector, 1.0),
            kept=np.flatnonzero(vector).tolist(),
            privacy=self._promised,
        )
        if found is None:
            return None
        part = np.where(np.isin(np.arange(len(clients)), found.clients), vector, 0.0)
        if self._overshare("these local models", np.array([*strict.values(), part])) is not None:
            return None  # smaller parts are not searched: a share has no such search
        return tuple(sorted(clients[j] for j in found.clients))

    def overshare(self, rows: Sequence[Row]) -> str | None:
        """Why the share of a client would be too large if these sums were all that is opened; None if nobody's is.

        Args:
            rows: The sums, about one set of local models; nothing is recorded.
        """
        return self._overshare("one set of local models", np.array([self._vector(row) for row in rows]))

    def merge(self, other: "Ledger") -> None:
        """Add everything that was opened according to another account of the same clients and the same promise.

        Raises:
            SpecError: If its clients or its promises are others.
        """
        if other._column != self._column:
            strangers = sorted(set(self._column) ^ set(other._column))
            raise SpecError(
                f"the two ledgers are about other clients: {', '.join(strangers[:8])} is in one of them only"
            )
        if other._promised != self._promised:
            raise SpecError(
                f"the ledger promised that sums mix {other._promised} clients, now privacy = {self._promised}: an account "
                "goes on with its promise; ask for the same one"
            )
        if (mine := self._limit()) != (theirs := other._limit()):
            raise SpecError(
                f"the ledger promised {_limit_text(theirs)}, now {_limit_text(mine)}: an account goes on with its promise; "
                "ask for the same one"
            )
        for models, rows in other._strict.items():
            self._strict.setdefault(models, {}).update(rows)
        self._tests.update(other._tests)
        self._training.update(other._training)
        self._overridden |= other._overridden

    def admit(self, rows: Iterable[Row], *, models: str, test: bool) -> None:
        """Add sums that are open according to somebody else: they are, whatever would have been permitted."""
        self._record([self._vector(row) for row in rows], models=models, test=test, overridden=False)
        if self._path is not None:
            self.save(self._path)

    def since(self, before: "Ledger") -> list[tuple[str, Row]]:
        """What was permitted since an earlier copy of this account: the set of local models, and client -> weight."""
        clients = list(self._column)
        return [
            (models, {clients[j]: float(row[j]) for j in np.flatnonzero(row).tolist()})
            for models, rows in self._strict.items()
            for key, row in rows.items()
            if key not in before._strict.get(models, {})
        ]

    def to_json(self) -> bytes:
        """The account in its canonical form: equal accounts are equal bytes, in whatever order they grew."""
        every = {key: row.tolist() for rows in self._every() for key, row in rows.items()}
        order = sorted(every, key=lambda key: every[key])
        number = {key: position for position, key in enumerate(order)}

        def numbers(rows: _Rows) -> list[int]:
            return sorted(number[key] for key in rows)

        content = {
            "version": _VERSION,
            "promised": self._promised,
            "clients": list(self._column),
            "rows": [every[key] for key in order],
            "strict": {models: numbers(rows) for models, rows in self._strict.items() if rows},
            "tests": numbers(self._tests),
            "training": numbers(self._training),
            "overridden": self._overridden,
            **self._limit(),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    def save(self, path: Path) -> None:
        """Write the account to a file (mode 0600), whole or not at all; it is on the disk when this returns.

        Raises:
            SpecError: If it cannot be written.
        """
        write_durably(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        """Read what `save` wrote.

        Raises:
            SpecError: If the file cannot be read, is of another version, or is not exactly what `save` writes.
        """
        return cls.from_json(read_content(path, "ledger", largest=_LARGEST_FILE), path)

    @classmethod
    def from_json(cls, content: bytes, path: Path | str) -> "Ledger":
        """Read what `to_json` gave; `path` is for messages.

        Raises:
            SpecError: As `load`.
        """
        try:
            raw: dict[str, Any] = strict_json.parse(content)
            if raw["version"] != _VERSION:
                raise SpecError(
                    f"ledger {path} is of version {raw['version']!r:.20}, this fedgt reads {_VERSION}: take the fedgt that "
                    "wrote it"
                )
            ledger = cls(
                clients=raw["clients"],
                promised=int(raw["promised"]),
                largest_share=float(raw.get("largest_share", 1.0)),
                colluders=int(raw.get("colluders", 0)),
            )
            rows = [ledger._vector(dict(zip(raw["clients"], row, strict=True))) for row in raw["rows"]]
            ledger._strict = {models: _chosen(rows, numbers) for models, numbers in raw["strict"].items()}
            ledger._tests, ledger._training = (_chosen(rows, raw[name]) for name in ("tests", "training"))
            ledger._overridden = bool(raw["overridden"])
            same = ledger.to_json() == content
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise SpecError(f"ledger {path} cannot be read: {plain(error)}") from error
        if not same:
            raise SpecError(
                f"ledger {path} is not as fedgt writes it: it was changed or is damaged; nothing may be opened"
            )
        return ledger

    @classmethod
    def kept_in(
        cls,
        path: Path,
        *,
        clients: Sequence[str],
        promised: int,
        largest_share: float = NO_LIMIT,
        colluders: int = 0,
        begun: bool = False,
    ) -> "Ledger":
        """The account in a file, which has every permission before it is given; several processes may share it.

        Args:
            path: The file; beside it stands its lock. It is made if it does not exist.
            clients: Every client id, in any order.
            promised: The promised r.
            largest_share: As for `Ledger`.
            colluders: As for `Ledger`.
            begun: The run goes on, so the file must be there: an account that is lost cannot be gone on with.

        Raises:
            SpecError: If the file is missing and the run has begun, cannot be used, or is about other clients or another
                promise.
        """
        ledger = cls(clients=clients, promised=promised, largest_share=largest_share, colluders=colluders)
        ledger.keep(path, begun=begun)
        return ledger

    def keep(self, path: Path, *, begun: bool = False) -> None:
        """Keep this account in a file from now on, together with what the file holds already; see `kept_in`.

        Raises:
            SpecError: As `kept_in`.
        """
        with locked(path):
            if path.exists():
                self.merge(Ledger.load(path))
            elif begun:
                raise SpecError(
                    f"ledger {path} is missing: what was opened before is not known, so nothing may be opened now; find the "
                    "file, or begin a new run from round 1 with a model that no client has trained before"
                )
            self.save(path)
        self._path = path

    @property
    def path(self) -> Path | None:
        """The file that it is kept in; None where it ends with the process."""
        return self._path

    def test_rows(self, clients: Sequence[str]) -> FloatArray:
        """float64[rows, clients]: all that test rounds have revealed, or may have, one column for each of these clients."""
        rows = np.array(list(self._tests.values())).reshape(-1, len(self._column))
        return rows[:, [self._column[client] for client in clients]]

    def account(self) -> PrivacyAccount:
        """What can be claimed now. The exact r of every account is computed here, which may take seconds for large n."""
        return privacy_account(
            clients=tuple(self._column),
            promised=self._promised,
            largest_share=self._largest_share,
            colluders=self._colluders,
            strict=[np.array(list(rows.values())) for rows in self._strict.values() if rows],
            tests=np.array(list(self._tests.values())),
            training=np.array(list(self._training.values())),
            overridden=self._overridden,
            weights=self._weights,
        )

    def _empty(self) -> "Ledger":
        """One of the same clients and promises in which nothing is opened."""
        return Ledger(
            clients=tuple(self._column),
            promised=self._promised,
            largest_share=self._largest_share,
            colluders=self._colluders,
        )

    def _limit(self) -> dict[str, float]:
        """The promise about shares, if there is one: only then it stands in the file."""
        if self._largest_share == 1:
            return {}
        return {"largest_share": self._largest_share, "colluders": self._colluders}

    def _every(self) -> Iterable[_Rows]:
        return (*self._strict.values(), self._tests, self._training)

    def _accounts(self, models: str, *, test: bool) -> list[tuple[str, _Rows]]:
        strict = ("these local models", self._strict.get(models, {}))
        return [strict, ("all test rounds together", self._tests)] if test else [strict]

    def _breach(self, accounts: Sequence[tuple[str, _Rows]], new: Sequence[FloatArray]) -> str | None:
        for name, rows in accounts:
            support = minimum_support(np.array([*rows.values(), *new]), enough=self._promised)
            if support is not None and support.lower < self._promised:
                return self._refusal(name, support)
        name, rows = accounts[0]
        return self._overshare(name, np.array([*rows.values(), *new]))

    def _overshare(self, account: str, rows: FloatArray) -> str | None:
        if self._largest_share == 1:
            return None
        found = disclosed_share(rows, weights=weights_behind(rows, self._weights), colluding=self._colluders)
        if found is None or not found.exceeds(self._largest_share):
            return None
        helped = f", with {self._colluders} colluding," if self._colluders else ""
        return (
            f"what would be revealed about {account} explains{helped} {found.largest:.2f} of what is particular to "
            f"{sorted(self._column)[found.client]}, the promised largest_share is {self._largest_share:g}"
        )

    def _refusal(self, account: str, support: Support) -> str:
        ids = sorted(self._column)
        mixed = ", ".join(ids[j] for j in support.clients[:8])
        found = (
            f"a combination of what would be revealed about {account} mixes only {support.upper} "
            f"client{'s' if support.upper > 1 else ''} ({mixed})"
            if support.upper < self._promised
            else f"only r >= {support.lower} could be proved about {account}"
        )
        return f"{found}, the promise is {self._promised}"

    def _vector(self, row: Row) -> FloatArray:
        unknown = sorted(set(row) - set(self._column))
        if unknown:
            raise SpecError(f"clients unknown to the ledger: {', '.join(unknown)}")
        vector = np.zeros(len(self._column))
        for client, weight in row.items():
            if not np.isfinite(weight) or weight < 0:
                raise SpecError(f"client {client!r} has weight {weight} in a sum; a finite weight >= 0 is needed")
            vector[self._column[client]] = weight + 0.0  # no -0.0, which would be another row
        return vector


def _chosen(rows: Sequence[FloatArray], numbers: Iterable[int]) -> _Rows:
    return {rows[number].tobytes(): rows[number] for number in numbers}


def _limit_text(limit: Mapping[str, float]) -> str:
    if not limit:
        return "no largest_share"
    return f"largest_share = {limit['largest_share']:g} with {limit['colluders']} colluders"
