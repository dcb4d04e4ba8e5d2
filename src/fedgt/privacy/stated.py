"""What can be claimed about everything that was opened: the numbers that a ledger states."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fedgt.privacy.disclosed_share import DisclosedShare, can_try, disclosed_share, weights_behind
from fedgt.privacy.support import minimum_support
from fedgt.types import FloatArray


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
        shares: Client -> the largest share of what is particular to it that the sums about one set of local models explain
            to the server alone; empty when nothing was opened.
        share_mean: The mean of the shares about one set of local models, the largest of these; None when nothing was opened.
        share_helped: The largest share of anybody about one set of local models with the colluders' help; None when nothing
            was opened, or there are too many sets of colluders to try.
        share_cautious: The shares of all test rows together, as if updates repeated; None when no test row was opened.
        largest_share: The promised limit of any share, with the colluders' help; 1 is none.

    Examples:
        >>> from fedgt import Ledger
        >>> ledger = Ledger(clients=["ada", "bob", "cleo", "dan"], promised=2)
        >>> rows = [{"ada": 1, "bob": 1}, {"cleo": 1, "dan": 1}]
        >>> ledger.permit(rows, models="round 1", test=True)
        (None, None)
        >>> account = ledger.account()
        >>> account.promised, account.strict, round(account.share_mean, 2)
        (2, 2, 0.33)
    """

    promised: int
    strict: int | None
    cautious: int | None
    with_training: int | None
    overridden: bool
    shares: Mapping[str, float]
    share_mean: float | None
    share_helped: float | None
    share_cautious: DisclosedShare | None
    largest_share: float

    @property
    def share_largest(self) -> float | None:
        """The largest share of any client about one set of local models; None when nothing was opened."""
        return max(self.shares.values(), default=None)


def privacy_account(
    *,
    clients: Sequence[str],
    promised: int,
    largest_share: float,
    colluders: int,
    strict: Sequence[FloatArray],
    tests: FloatArray,
    training: FloatArray,
    overridden: bool,
    weights: FloatArray,
) -> PrivacyAccount:
    """Compute the account of these rows; it may take seconds for many clients.

    Args:
        clients: The client of each column.
        promised: The promised r.
        largest_share: The promised limit of any share.
        colluders: With whose help the largest share is computed as well.
        strict: float[sums, clients] for each set of local models about which something was opened.
        tests: float[sums, clients]: all test rows; empty if there are none.
        training: The same of all training sums.
        overridden: Whether a sum was opened below the promise.
        weights: float[clients]: the weight of each client in every mean; 0 where it is not known.
    """

    def share(rows: FloatArray, colluding: int = 0) -> DisclosedShare | None:
        return disclosed_share(rows, weights=weights_behind(rows, weights), colluding=colluding)

    together = [rows for rows in (tests, training) if rows.size]
    alone = [one for rows in strict if (one := share(rows)) is not None]
    helped: list[DisclosedShare] = []
    if can_try(len(clients), colluders):
        helped = [one for rows in strict if (one := share(rows, colluders)) is not None]
    shares = {client: max(one.shares[j] for one in alone) for j, client in enumerate(clients)} if alone else {}
    return PrivacyAccount(
        promised=promised,
        strict=min((r for rows in strict if (r := _r(rows)) is not None), default=None),
        cautious=_r(tests),
        with_training=_r(np.concatenate(together)) if together else None,
        overridden=overridden,
        shares=MappingProxyType(shares),
        share_mean=max((one.mean for one in alone), default=None),
        share_helped=max((one.largest for one in helped), default=None),
        share_cautious=share(tests) if tests.size else None,
        largest_share=largest_share,
    )


def _r(rows: FloatArray) -> int | None:
    support = minimum_support(rows) if rows.size else None
    return None if support is None else support.r
