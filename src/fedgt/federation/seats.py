"""Who sits where in the first test, and the plan that says so."""

from typing import TYPE_CHECKING

import numpy as np

from fedgt.design import AnyDesign, Design, StagedDesign
from fedgt.engine import MeetingTransport
from fedgt.errors import SpecError
from fedgt.federation.participants import Federation
from fedgt.federation.settings import DecodeSettings, ScreenSettings
from fedgt.grouping import Grouping, assign

if TYPE_CHECKING:
    from fedgt.planning import Plan

_SEATS = 0  # an independent stream of the seed


def seated(
    federation: Federation, given: "Grouping | Plan | AnyDesign | None", *, graded: bool, seed: int
) -> tuple[Grouping, "Plan | None"]:
    """A client in every column, and the plan with these members if one was given.

    Args:
        federation: Who takes part.
        given: The seats; a plan, whose members are those of the run if it has none; or a design; None is the default one.
        graded: Whether evidence is graded: the default design depends on it.
        seed: Of the seats that are drawn.

    Raises:
        SpecError: If the plan promises more than the run.
        DesignError: If no groups keep the promise for so many clients, or the design is for another number.
    """
    clients, plan = tuple(federation.samples), None
    if isinstance(given, Grouping):
        return given, None
    if given is None:
        given = _default(federation, len(clients), graded=graded)
    elif not isinstance(given, Design | StagedDesign):
        plan, promised = given, federation.ledger.promised
        if promised < plan.privacy.promised:
            raise SpecError(
                f"privacy = {promised}, but the plan promises {plan.privacy.promised}: ask for no less, or make another plan"
            )
        if plan.members is not None:
            return Grouping.of(plan.assignment, plan.members), plan
        given = plan.assignment
    grouping = assign(given, clients, rng=np.random.default_rng([seed, _SEATS]))
    return grouping, None if plan is None else plan.model_copy(update={"members": grouping.clients})


def _default(federation: Federation, clients: int, *, graded: bool) -> Design:
    """Over a network with room for an absence, where that leaves enough evidence."""
    from fedgt.planning import SPARE, default_design, design_for_absences

    privacy, sums = federation.ledger.promised, federation.sums
    if graded and isinstance(federation.transport, MeetingTransport):
        return design_for_absences(
            clients, privacy=privacy, largest_share=sums.largest_share, colluders=sums.colluders
        )[0]
    return default_design(
        clients,
        graded=graded,
        privacy=privacy,
        spare=SPARE if graded else 0,
        largest_share=sums.largest_share,
        colluders=sums.colluders,
    )


def planned(federation: Federation, grouping: Grouping, screen: ScreenSettings, decode: DecodeSettings) -> "Plan":
    """The plan of groups that were given without one, with its certificate."""
    from fedgt.planning.plan_file import plan_of

    graded, clients = screen.kind == "graded", len(grouping.clients)
    largest = decode.max_malicious or max(1, (clients - 1) // 2)
    return plan_of(
        grouping.whole,
        privacy=federation.ledger.promised,
        evidence="graded" if graded else "binary",
        largest=decode.largest_graded(clients, screen.features) if graded else largest,
        members=grouping.clients,
    )
