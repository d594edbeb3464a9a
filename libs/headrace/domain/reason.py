"""Why a request ended without a result: a closed set, on every wire.

The same word stands in the reply's ``headrace-reason``, in the metric's label, in
the log line and in a dead letter, so that one search finds all of them.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["HTTP_STATUS", "RETRY_AFTER", "Reason", "is_final"]


class Reason(StrEnum):
    """A stable code. The value is what travels; see :data:`HTTP_STATUS`."""

    INVALID = "invalid"
    POISON = "poison"
    MODEL_UNKNOWN = "model_unknown"
    TOO_LARGE = "too_large"
    KEY_REUSED = "key_reused"
    QUOTA = "quota"
    MODEL_ERROR = "model_error"
    NO_FORMER = "no_former"
    LOG_UNAVAILABLE = "log_unavailable"
    STORE_UNAVAILABLE = "store_unavailable"
    SHED_WINDOW = "shed_window"
    QUEUE_FULL = "queue_full"
    OVERLOADED = "overloaded"
    NO_CAPACITY = "no_capacity"
    DRAINING = "draining"
    MODEL_LOADING = "model_loading"
    MODEL_UNAVAILABLE = "model_unavailable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    EXPIRED = "expired"
    DEADLINE_UNATTAINABLE = "deadline_unattainable"
    CANCELLED = "cancelled"
    UNDECODABLE = "undecodable"
    REPLY_ADDRESS = "reply_address"
    RETENTION_GAP = "retention_gap"
    PAYLOAD_LOST = "payload_lost"
    CRASH = "crash"


HTTP_STATUS: dict[Reason, int] = {
    Reason.INVALID: 400,
    Reason.POISON: 400,
    Reason.UNDECODABLE: 400,
    Reason.REPLY_ADDRESS: 400,
    Reason.MODEL_UNKNOWN: 404,
    Reason.TOO_LARGE: 413,
    Reason.KEY_REUSED: 422,
    Reason.QUOTA: 429,
    Reason.CANCELLED: 499,
    Reason.MODEL_ERROR: 500,
    Reason.CRASH: 500,
    Reason.RETENTION_GAP: 500,
    Reason.PAYLOAD_LOST: 500,
    Reason.NO_FORMER: 503,
    Reason.LOG_UNAVAILABLE: 503,
    Reason.STORE_UNAVAILABLE: 503,
    Reason.SHED_WINDOW: 503,
    Reason.QUEUE_FULL: 503,
    Reason.OVERLOADED: 503,
    Reason.NO_CAPACITY: 503,
    Reason.DRAINING: 503,
    Reason.MODEL_LOADING: 503,
    Reason.MODEL_UNAVAILABLE: 503,
    Reason.ATTEMPTS_EXHAUSTED: 503,
    Reason.EXPIRED: 504,
    Reason.DEADLINE_UNATTAINABLE: 504,
}
"""Status of an admitted request. At the door ``expired`` and
``deadline_unattainable`` are 503, since nothing was accepted."""

RETRY_AFTER: frozenset[int] = frozenset({429, 503})
"""Statuses whose answer carries ``retry-after``."""

_WORTH_A_RETRY = frozenset({429, 503, 504})


def is_final(reason: Reason | None) -> bool:
    """Whether asking the same again is no use: a success (None), or an error that is
    the request's own. Any other ends those who wait, and no more; so does a cancel,
    after which nobody has asked."""
    if reason is None:
        return True
    return reason is not Reason.CANCELLED and HTTP_STATUS[reason] not in _WORTH_A_RETRY
