"""A request as it lies in the log, with how it ended."""

from __future__ import annotations

import msgspec

from headrace.domain import PayloadRef, Priority, Source, Tensor
from headrace.replay.conditions import Facts
from headrace.wire import Record
from headrace.wire import headers as names

__all__ = ["RECORDED_FACTS", "Ending", "Recorded"]

RECORDED_FACTS = frozenset(
    {
        *("id", "tenant", "version", "priority", "rows", "status", "latency_ms"),
        *("partition", "offset", "header."),
    }
)
"""What a condition may ask of a recorded request."""

STATUS_OK = "ok"


class Ending(msgspec.Struct, frozen=True):
    """The first end of a request. ``status`` is ``ok``, or the reason of its error;
    ``version`` is the one that ran, and empty for an error. ``run_us`` and
    ``batch_rows`` are those of its batch, 0 where the answer does not say."""

    place: Source
    at_us: int
    status: str
    text: str = ""
    version: str = ""
    outputs: tuple[Tensor, ...] = ()
    run_us: int = 0
    batch_rows: int = 0
    payload: PayloadRef | None = None
    """Where the outputs' data are, if they are not here."""

    @property
    def is_ok(self) -> bool:
        return self.status == STATUS_OK


class Recorded(msgspec.Struct, frozen=True):
    """``rows`` None: its record does not say; ``ending`` None: the log has none."""

    record: Record
    id: str
    tenant: str
    model: str
    priority: Priority
    rows: int | None
    ending: Ending | None = None

    @property
    def source(self) -> Source:
        return Source(self.record.topic, self.record.partition, self.record.offset)

    @property
    def place(self) -> str:
        return names.source_text(self.source).decode()

    @property
    def latency_us(self) -> int | None:
        """From its record to its end's."""
        if self.ending is None:
            return None
        return self.ending.at_us - self.record.timestamp_us

    def facts(self) -> Facts:
        """Under the names of :data:`RECORDED_FACTS`; the version is the one that ran,
        else the one that was asked for."""
        headers = {
            name: (value or b"").decode(errors="replace")
            for name, value in self.record.headers
        }
        ending, latency_us = self.ending, self.latency_us
        ran = ending.version if ending else ""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "version": ran or headers.get(names.VERSION),
            "priority": self.priority.name.lower(),
            "rows": self.rows,
            "status": ending.status if ending else None,
            "latency_ms": None if latency_us is None else latency_us / 1000,
            "partition": self.record.partition,
            "offset": self.record.offset,
            **{f"header.{name}": value for name, value in headers.items()},
        }
