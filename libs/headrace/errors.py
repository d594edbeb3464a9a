"""The errors that cross a border of the product, by who has to act next.

HeadraceError
├── RequestError          the sender's request; carries a reason and a text for him
├── UndecodableRecord     a record that its reader must skip, and why
├── BusError              the log answered with an error
│   ├── BusTimeout        outcome unknown: the record may or may not be in the log
│   ├── BusFull           refused before anything was sent; try again later
│   └── OffsetOutOfRange  the position is no longer, or not yet, in the log
├── StoreUnavailable      the payload store does not answer; again later
├── PayloadLost           an object of the payload store is gone, or is another
├── ModelRefused          a version folder that cannot be served, and why
└── SetupError            the operator's machine or configuration; says the way out

An expected outcome of a decision (refused, expired) is a decision, never an
exception. Adapters translate a library's exceptions once, chained to the original.
"""

from __future__ import annotations

__all__ = [
    "BusError",
    "BusFull",
    "BusTimeout",
    "HeadraceError",
    "ModelRefused",
    "OffsetOutOfRange",
    "PayloadLost",
    "RequestError",
    "SetupError",
    "StoreUnavailable",
    "UndecodableRecord",
]


class HeadraceError(Exception):
    """Root of every error that this package raises on purpose."""


class RequestError(HeadraceError):
    """A request that cannot be served as it was sent.

    ``reason`` is the name of a :class:`headrace.domain.Reason`; the text says what
    was wrong, where, and what would be right. ``logged`` is the text for others than
    the sender: given where the text shows data of the request.
    """

    def __init__(
        self, text: str, *, reason: str = "invalid", logged: str | None = None
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.logged = text if logged is None else logged


class UndecodableRecord(HeadraceError):
    """A record's value is broken, or of a version that this reader does not know."""

    reason = "undecodable"


class BusError(HeadraceError):
    """The log refused an operation; ``code`` is Kafka's name for the error."""

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code


class BusTimeout(BusError):
    """No answer in time: the outcome is unknown."""


class BusFull(BusError):
    """The producer's queue is full: nothing was sent."""


class OffsetOutOfRange(BusError):
    """A reader's position lies outside the partition's log."""

    def __init__(self, text: str, *, topic: str, partition: int) -> None:
        super().__init__(text, code="_AUTO_OFFSET_RESET")
        self.topic = topic
        self.partition = partition


class StoreUnavailable(HeadraceError):
    """The payload store did not do what it was asked; it may, later."""


class PayloadLost(HeadraceError):
    """An object is not there, or not the one that its reference means: no retry
    brings it back."""


class ModelRefused(HeadraceError):
    """A version folder cannot be served; the text names the reason and the remedy."""


class SetupError(HeadraceError):
    """The machine or the configuration is not fit; the text names the way out."""
