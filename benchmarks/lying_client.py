"""A client that breaks the rules about its own vector, everything else as it should be: tags and signatures are right."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305

from fedgt.secagg import ClientSession
from fedgt.secagg.challenge import field_of, lanes
from fedgt.secagg.frames import pack_in_place
from fedgt.secagg.messages import read_stage_message

Answer = Callable[[int], int | None]
"""What the client would answer by its own vector -> what it says; None says nothing."""


class LyingClient(ClientSession):
    """Adds what it likes to its vectors and pads, group by group, and answers what it likes.

    Args:
        vectors: Group -> what is added to the vector in this group, whole numbers.
        pads: Group -> what is added to the pad in this group; to each, if it carries several.
        answer: Of the answer.
        leaves: The groups that it leaves by itself, one by one: it sends no number for its pad there.
    """

    def __init__(
        self,
        client: str,
        *,
        vectors: Mapping[int, Any] | None = None,
        pads: Mapping[int, int] | None = None,
        answer: Answer = lambda number: number,
        leaves: Collection[int] = (),
        **options: Any,
    ) -> None:
        """See `ClientSession`."""
        super().__init__(client, **options)
        self._vectors, self._pads, self._lie = vectors or {}, pads or {}, answer
        self._leaves = leaves

    def masked(self, *args: Any, **options: Any) -> bytes:
        """The reply, with what is added to it."""
        reply = super().masked(*args, **options)
        return shifted(self, reply, self._vectors, self._pads, self._leaves)

    def _answer(self, seed: bytes | memoryview) -> bytes:
        honest, chosen = super()._answer(seed), field_of(self.plan)
        if chosen is None:
            return honest
        said = self._lie(chosen.from_bytes(honest))
        return b"" if said is None else chosen.to_bytes(said)


def shifted(
    session: ClientSession,
    reply: bytes,
    vectors: Mapping[int, Any],
    pads: Mapping[int, int],
    leaves: Collection[int] = (),
) -> bytes:
    """A reply of the masked stage with something added to what is masked: masks are sums, so they stay right."""
    plan, identity = session.plan, session._identity
    chosen = field_of(plan)
    unsigned = reply if identity is None else reply[:-64]
    message = read_stage_message(unsigned, plan=plan, stage="masked", client=session._client, at=session._turns.at)
    width = plan.length * plan.encoding.dtype.itemsize
    parts = []
    for part in message.parts:
        vector = np.frombuffer(part.body[:width], dtype=plan.encoding.dtype).copy()
        if part.group in vectors:
            added = [int(number) % 2**plan.encoding.ring_bits for number in vectors[part.group]]
            vector[: len(added)] += np.array(added, dtype=plan.encoding.dtype)
        body = vector.tobytes()
        for lane in range(0 if chosen is None else len(lanes(plan, part.group))):
            assert chosen is not None
            start = width + lane * chosen.size
            pad = chosen.from_bytes(part.body[start : start + chosen.size])
            pad = pad + pads.get(part.group, 0)
            body += b"\xff" * chosen.size if part.group in leaves else chosen.to_bytes(pad)
        if identity is not None:
            body += Poly1305.generate_tag(session._groups[part.group].tag_key, body)
        parts.append((part.group, body))
    header = message.header
    header["parts"] = [[group, [], [], len(body)] for group, body in parts]
    content = b"".join(body for _, body in parts)

    def fill(view: memoryview) -> None:
        view[:] = content

    return pack_in_place(header, len(content), fill, identity=identity)
