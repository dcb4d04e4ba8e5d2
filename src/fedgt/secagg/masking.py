"""A client's reply of the masked stage: its one vector, masked once for each of its groups, in the message that is sent.

With coefficients it is multiplied first, and so are its pads: a piece at a time, while it is in the cache.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305

from fedgt.secagg.challenge import Committed, field_of, lanes
from fedgt.secagg.field import Field
from fedgt.secagg.fixed_point import RingArray
from fedgt.secagg.identity import Identity
from fedgt.secagg.masks import CHUNK_BYTES, MaskStream, mask_scratch, pad_masks
from fedgt.secagg.membership import Membership
from fedgt.secagg.messages import masked_message
from fedgt.secagg.plan import RoundPlan
from fedgt.secagg.vector import Tensors, client_chunks, scaled, signed


def masked_reply(
    plan: RoundPlan,
    client: str,
    groups: Mapping[int, Membership],
    refused: Mapping[int, str],
    unreadable: Mapping[int, tuple[int, ...]],
    update: Tensors | Committed,
    center: Tensors | None,
    base: Tensors | None,
    identity: Identity | None,
    *,
    at: int = 0,
) -> tuple[bytes, Committed | None]:
    """The message, and what the client has committed to in it (None if the plan has no challenge).

    In a later stage this is what it has committed to in the first one: nothing is trained, clipped or rounded again.

    Args:
        plan: The plan.
        client: Who replies.
        groups: The groups that get a vector.
        refused: The others, and why.
        unreadable: Group -> the peers whose shares cannot be read, by position.
        update: As in `ClientSession.masked`; in a later stage what the client has committed to.
        center: As in `ClientSession.masked`.
        base: As in `ClientSession.masked`.
        identity: Signs, and tags the vectors.
        at: The stage of the plan.
    """
    chosen = field_of(plan)
    committed = update if isinstance(update, Committed) else None if chosen is None else Committed.empty(plan)

    def chunks() -> Iterable[tuple[int, RingArray]]:
        if isinstance(update, Committed):
            return update.chunks(plan, CHUNK_BYTES // plan.encoding.dtype.itemsize)
        return client_chunks(plan, client, update, center, base=base, wary=identity is not None)

    masks = {index: one.masks() for index, one in groups.items()}
    factors = {index: plan.factors(index)[client] for index in groups}
    streams = {
        index: [MaskStream(seeds, subtract=subtract) for seeds, subtract in some] for index, some in masks.items()
    }

    def fill(vectors: Mapping[int, RingArray]) -> Mapping[int, bytes]:
        # Piece by piece, so that each is encoded once and meets all its masks while it is in the cache.
        scratch = mask_scratch()
        memory = np.empty(CHUNK_BYTES // plan.encoding.dtype.itemsize, dtype=plan.encoding.dtype)
        tags = {group: Poly1305(groups[group].tag_key) for group in vectors if identity is not None}
        for start, levels in chunks():
            if committed is not None:
                committed.vector[start : start + levels.size] = signed(levels)
            for group, vector in vectors.items():
                chunk = vector[start : start + levels.size]
                first, *others = streams[group]
                first.apply(chunk, scratch, source=scaled(levels, factors[group], memory))
                for stream in others:
                    stream.apply(chunk, scratch)
                if group in tags:
                    tags[group].update(chunk.view(np.uint8).data)
        ends = {}
        for group in vectors:
            ends[group] = b""
            if chosen is not None and committed is not None:
                pads = [factors[group] * committed.pads[lane] for lane in lanes(plan, group)]
                ends[group] = _masked(chosen, pads, masks[group])
            if group in tags:
                tags[group].update(ends[group])
                ends[group] += tags[group].finalize()
        return ends

    message = masked_message(plan, client, list(groups), refused, fill, unreadable=unreadable, at=at, identity=identity)
    return message, committed


def _masked(field: Field, pads: list[int], masks: list[tuple[bytes, bool]]) -> bytes:
    for seeds, subtract in masks:
        for lane, mask in enumerate(pad_masks(field, seeds)):
            pads[lane] += -mask if subtract else mask
    return b"".join(map(field.to_bytes, pads))
