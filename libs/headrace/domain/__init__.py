"""The words that every part shares: frozen values without behaviour that fails late."""

from headrace.domain.dispatch import (
    Arrived,
    BatchEnded,
    Dispatch,
    Event,
    HopsMeasured,
    Refuse,
    ReleaseReason,
    Scheduler,
    SchedulerDecision,
    SlotChanged,
    Ticked,
    VersionChanged,
    Withdrawn,
)
from headrace.domain.model import BATCH_AXIS_NONE, ModelState, Padding, ServedVersion
from headrace.domain.reason import HTTP_STATUS, RETRY_AFTER, Reason
from headrace.domain.request import Priority, ReplyAddress, Request, Source
from headrace.domain.tensor import VARIABLE, Datatype, Signature, Tensor, TensorSpec

__all__ = [
    "BATCH_AXIS_NONE",
    "HTTP_STATUS",
    "RETRY_AFTER",
    "VARIABLE",
    "Arrived",
    "BatchEnded",
    "Datatype",
    "Dispatch",
    "Event",
    "HopsMeasured",
    "ModelState",
    "Padding",
    "Priority",
    "Reason",
    "Refuse",
    "ReleaseReason",
    "ReplyAddress",
    "Request",
    "Scheduler",
    "SchedulerDecision",
    "ServedVersion",
    "Signature",
    "SlotChanged",
    "Source",
    "Tensor",
    "TensorSpec",
    "Ticked",
    "VersionChanged",
    "Withdrawn",
]
