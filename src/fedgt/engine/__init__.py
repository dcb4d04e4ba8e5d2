"""The engine: carries the messages of secure sums to clients and back, and runs the clients' end."""

from fedgt.engine.aggregate import GoOn, SecureSums, TakesSums, secure_sums
from fedgt.engine.announced import OnStage
from fedgt.engine.endpoint import Client, ClientEndpoint, TrainedModel
from fedgt.engine.prekey_store import PrekeyStore
from fedgt.engine.round_message import fingerprint
from fedgt.engine.transport import Failure, LocalTransport, MeetingTransport, Transport

__all__ = [
    "Client",
    "ClientEndpoint",
    "Failure",
    "GoOn",
    "LocalTransport",
    "MeetingTransport",
    "OnStage",
    "PrekeyStore",
    "SecureSums",
    "TakesSums",
    "TrainedModel",
    "Transport",
    "fingerprint",
    "secure_sums",
]
