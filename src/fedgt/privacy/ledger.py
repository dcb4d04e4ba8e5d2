"""What has been revealed, and what may still be: the round asks here *before* it opens a sum.

Two accounts (docs/privacy.md has the argument).

* *Strict*: every sum opened about one set of local models, stacked; a sum that would push the real minimum support r below
  the promise is refused.
* *Cautious*: the rows of all test rounds, as if the clients' updates repeated from round to round. It gates further test
  rows only. Training sums are not in it: the sum over everybody in one round minus the sum over the kept clients of the
  next has the excluded clients as its support, in any federated learning that drops a client.

A permitted sum counts as revealed from the moment of the permission, whether or not its opening succeeds.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedgt.errors import PrivacyError, SpecError
from fedgt.ids import require_distinct_ids
from fedgt.privacy.support import Support, minimum_support
from fedgt.types import FloatArray

_log = logging.getLogger(__name__)

Row = Mapping[str, float]
"""One aggregate as client -> real weight in the sum; clients left out have weight 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyAccount:
    """What can be claimed about everything opened so far.

    Attributes:
        promised: The promised r.
        strict: The smallest proved r over all sets of local models; None when nothing was opened.
        cautious: The proved r of all test rows together; None when no test row was opened.
        with_training: As `cautious`, with all training sums as well: reported, never enforced. None when nothing was
            opened.
        overridden: Whether a sum was opened below the promise because the user said so by name.
    """

    promised: int
    strict: int | None
    cautious: int | None
    with_training: int | None
    overridden: bool


class Ledger:
    """The account of one run. It only ever grows; there is no way to take a row back."""

    def __init__(self, *, clients: Sequence[str], promised: int) -> None:
        """Open an account.

        Args:
            clients: Every client id, in any order.
            promised: The promised r: no combination of what is revealed mixes fewer clients.

        Raises:
            SpecError: If an id repeats, cannot be one or looks like another; if the promise is not between 1 and
                the number of clients.
        """
        if len(set(clients)) != len(clients):
            raise SpecError("client ids must be unique: one participant registered twice")
        require_distinct_ids(clients)
        if not 1 <= promised <= len(clients):
            raise SpecError(
                f"privacy = {promised}; with {len(clients)} clients a promise from 1 (single models may be seen) to "
                f"{len(clients)} (only the sum over everybody) is needed"
            )
        self._column = {client: j for j, client in enumerate(sorted(clients))}
        self._promised = promised
        self._strict: dict[str, list[FloatArray]] = {}
        self._tests: list[FloatArray] = []
        self._training: list[FloatArray] = []
        self._overridden = False

    @property
    def promised(self) -> int:
        """The promised r."""
        return self._promised

    def permit(self, rows: Sequence[Row], *, models: str, test: bool, override: bool = False) -> tuple[str | None, ...]:
        """Ask whether sums may be opened; those permitted are on record from now on.

        Rows are considered in the given order: when they cannot all be opened, each is added if the promise still holds
        with those before it.

        Args:
            rows: The real weights of the sums with the members who really took part; an empty row stands for a group
                that has no sum and is passed through as refused.
            models: Names the set of local models, such as `round-3`: sums of the same local models share an account.
            test: Whether these are test rows, which the cautious account gates as well.
            override: The user accepts, by name, that the promise is broken by these sums. Everything is permitted and
                the account says so.

        Returns:
            For each row None when it may be opened, else the reason why not.
        """
        vectors = [self._vector(row) for row in rows]
        asked = [i for i, vector in enumerate(vectors) if vector.any()]
        verdicts: list[str | None] = ["no member of the group took part"] * len(rows)
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
                    self._overridden = True
                    breach = None
                verdicts[i] = breach
                if breach is None:
                    granted.append(vectors[i])
        opened = [vectors[i] for i in asked if verdicts[i] is None]
        self._strict.setdefault(models, []).extend(opened)
        (self._tests if test else self._training).extend(opened)
        return tuple(verdicts)

    def require(self, row: Row, *, models: str, override: bool = False) -> None:
        """As `permit` for one training sum, but a refusal is an error.

        Raises:
            PrivacyError: If the sum may not be opened.
        """
        (refusal,) = self.permit([row], models=models, test=False, override=override)
        if refusal is not None:
            raise PrivacyError(refusal)

    def account(self) -> PrivacyAccount:
        """What can be claimed now. The exact r of every account is computed here, which may take seconds for large n."""
        strict = [support.r for rows in self._strict.values() if (support := _support(rows)) is not None]
        cautious = _support(self._tests)
        combined = _support([*self._tests, *self._training])
        return PrivacyAccount(
            promised=self._promised,
            strict=min(strict, default=None),
            cautious=None if cautious is None else cautious.r,
            with_training=None if combined is None else combined.r,
            overridden=self._overridden,
        )

    def _accounts(self, models: str, *, test: bool) -> list[tuple[str, list[FloatArray]]]:
        strict = ("these local models", self._strict.get(models, []))
        return [strict, ("all test rounds together", self._tests)] if test else [strict]

    def _breach(self, accounts: Sequence[tuple[str, list[FloatArray]]], new: Sequence[FloatArray]) -> str | None:
        for name, rows in accounts:
            support = minimum_support(np.array([*rows, *new]), enough=self._promised)
            if support is not None and support.lower < self._promised:
                return self._refusal(name, support)
        return None

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
            vector[self._column[client]] = weight
        return vector


def _support(rows: Sequence[FloatArray]) -> Support | None:
    return minimum_support(np.array(rows)) if rows else None
