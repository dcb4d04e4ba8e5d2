"""Frames of fedgt as contents of Flower messages, and back."""

import hashlib
import json
from collections.abc import Mapping

from flwr.app import Array, ArrayRecord, RecordDict

from fedgt.errors import ProtocolError

MESSAGE_TYPES = {
    "hello": "query.fedgt_hello",
    "begin": "query.fedgt_begin",
    "further": "query.fedgt_further",
    "shares": "query.fedgt_shares",
    "masked": "train.fedgt_masked",
    "agree": "query.fedgt_agree",
    "finish": "query.fedgt_finish",
}
"""Stage -> the type of its messages; only "masked" trains."""

_RECORD, _FRAME, _STYPE = "fedgt", "frame", "fedgt.frame"


def inputs_of(config: Mapping[str, bool | float | int | str]) -> dict[str, str]:
    """The configuration of a run as an input to training: "config" -> SHA-256; nothing for none.

    Args:
        config: `context.run_config`.

    Examples:
        >>> from fedgt.flower import inputs_of
        >>> inputs_of({"learning-rate": 0.05}) == inputs_of({"learning-rate": 0.06})
        False
    """
    if not config:
        return {}
    content = json.dumps(sorted(config.items()), separators=(",", ":"))
    return {"config": hashlib.sha256(content.encode()).hexdigest()}


def framed(frame: bytes) -> ArrayRecord:
    """A frame as one array of raw bytes, which Flower sends in chunks however large it is."""
    return ArrayRecord({_FRAME: Array("uint8", (len(frame),), _STYPE, frame)})


def frame_record(frame: bytes) -> RecordDict:
    """A frame as the content of a message."""
    return RecordDict({_RECORD: framed(frame)})


def frame_of(content: RecordDict, *, record: str = _RECORD) -> bytes:
    """The frame in the content of a message, or in a state.

    Raises:
        ProtocolError: If there is none.
    """
    found = content.get(record)
    array = found.get(_FRAME) if isinstance(found, ArrayRecord) else None
    if array is None or array.stype != _STYPE:
        raise ProtocolError("the Flower message carries no fedgt frame: both sides need fedgt, of the same version")
    return array.data
