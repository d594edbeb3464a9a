"""One inference request between its head and its answer, whatever carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.domain import Priority, ServedVersion
from services.ingress.head import Head

if TYPE_CHECKING:
    from headrace.broker import Producer
    from services.ingress.fleet import Destination
    from services.ingress.parsing import WantedOutput
    from services.ingress.refusal import Refusal

__all__ = ["Exchange"]

_UNREAD = Head()


class Exchange(ABC):
    """The handler's side of a request: what it was asked, how it is answered.

    It is also the waiter: the reader of replies finds it by ``request_id``. Two kinds
    carry one: a connection of the hot route, and an ASGI call.
    """

    __slots__ = (
        "client_id",
        "destination",
        "doubt",
        "head",
        "is_claiming",
        "is_unclaiming",
        "lane",
        "limit_us",
        "named_version",
        "outlet",
        "priority",
        "record_id",
        "refusal",
        "request_id",
        "reserved_bytes",
        "response_complete",
        "spoke",
        "started_us",
        "tenant",
        "wanted",
    )

    wanted: tuple[WantedOutput, ...]
    named_version: str
    record_id: str
    """Of a request whose answer is kept, once it has a record: the version in its path,
    and ``ce_id``."""

    def __init__(self, request_id: str, started_us: int) -> None:
        self.request_id = self.record_id = request_id
        self.started_us = started_us
        """When its head was complete; the time limit counts from here."""
        self.head = _UNREAD
        self.tenant = ""
        self.client_id = ""
        """The body's ``id``."""
        self.refusal: Refusal | None = None
        """Decided before the body was read; the body is dropped."""
        self.doubt: Refusal | None = None
        """What refuses it, unless its body says otherwise, or is at fault itself."""
        self.destination: Destination | None = None
        """None: it named no version that may be asked."""
        self.priority = Priority.STANDARD
        self.limit_us = 0
        """How long it may take, from ``started_us``."""
        self.lane = 0
        self.reserved_bytes = 0
        self.is_claiming = False
        """Its tensors are on their way to the payload store."""
        self.is_unclaiming = False
        """Those of its answer are on their way from there."""
        self.outlet: Producer | None = None
        """What its record went through, once it did."""
        self.response_complete = False
        self.spoke = 0

    @property
    def served(self) -> ServedVersion | None:
        """The version that it runs on, once that is known."""
        return None if self.destination is None else self.destination.served

    @abstractmethod
    def deliver(
        self, status: int, fields: bytes, body: Sequence[bytes | memoryview]
    ) -> None:
        """Send the answer: ``fields`` are header lines, each with its CR LF, without
        the framing of the body, which is the carrier's. Once; a client that went
        away gets nothing, and that is no error."""
        ...
