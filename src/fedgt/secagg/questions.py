"""The server's side of the challenge: the seeds of all stages, who was shown one, and what the clients have answered."""

from collections.abc import Iterable, Sequence

from fedgt.errors import ProtocolError
from fedgt.secagg.challenge import field_of, lanes, require_seed
from fedgt.secagg.identity import SIGNATURE_BYTES
from fedgt.secagg.plan import RoundPlan


class Questions:
    """One question a stage of a plan, or none.

    Args:
        plan: The plan.
        seeds: Of its challenges, in order: fresh, and shown to nobody before all vectors of their stage have arrived.
        signed: Whether answers ride on agree, with identities, or on unmask.

    Raises:
        ProtocolError: If they are not those of the plan.
    """

    def __init__(self, plan: RoundPlan, seeds: Sequence[bytes], *, signed: bool) -> None:
        """Nothing is shown yet."""
        if len(seeds) != len(plan.challenges) or (len(plan.stages) > 1 and not seeds):
            raise ProtocolError(
                f"{len(seeds)} seeds for {len(plan.challenges)} challenges and {len(plan.stages)} stages: the plan holds "
                "the hash of one seed a stage, unless it has one stage and nobody is in two groups"
            )
        for stage, seed in enumerate(seeds):
            require_seed(plan, seed, stage)
        self._plan = plan
        self._seeds = tuple(seeds)
        self._field = field_of(plan)
        self._message, self._stop = ("agree", SIGNATURE_BYTES) if signed else ("unmask", 0)
        self._asked: frozenset[str] = frozenset()
        self.answers: dict[str, int] = {}

    def seed(self, stage: int) -> bytes:
        """The seed of a stage; empty if the plan has no challenge."""
        return self._seeds[stage] if self._seeds else b""

    def show(self, stage: int, clients: Iterable[str]) -> bytes:
        """The seed of a stage, which these clients are about to be shown; their answers are awaited from now on."""
        self._asked = frozenset(clients) if self._seeds else frozenset()
        self.answers = {}
        return self.seed(stage)

    def read(self, message: str, client: str, attached: memoryview) -> memoryview:
        """Keep the answer that a reply ends with, if one is due; what else is attached comes before it.

        Raises:
            ProtocolError: If it is none.
        """
        if self._field is None or client not in self._asked or message != self._message:
            return attached
        if len(attached) != self._stop + self._field.size:
            raise ProtocolError("it has not answered the challenge")
        self.answers[client] = self._field.from_bytes(attached[self._stop :])
        return attached[: self._stop]

    def pads(self, group: int, after: memoryview) -> list[int]:
        """The masked pads of a client in a group, which stand after its vector.

        Raises:
            ProtocolError: If they are no numbers of the field.
        """
        if self._field is None:
            return []
        size = self._field.size
        return [
            self._field.from_bytes(after[lane * size : (lane + 1) * size])
            for lane in range(len(lanes(self._plan, group)))
        ]
