"""Frames of fedgt as contents of Flower messages, and back."""

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
