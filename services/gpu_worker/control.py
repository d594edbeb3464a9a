"""What the worker tells the former: by one producer, so that order is kept (W6)."""

from __future__ import annotations

from headrace.broker import Delivery, Producer
from headrace.delivery.events import WriteEnded
from headrace.errors import BusError
from headrace.telemetry import ProcessMetrics
from headrace.wire import PROTOBUF_HEADERS

__all__ = ["ControlWriter"]


class ControlWriter:
    """Writes completions of one lane. Its callers hold one lock, but for the making."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        lane: int,
        metrics: ProcessMetrics,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._lane = lane
        self._ended: list[WriteEnded] = []
        self._metrics = metrics
        self._headers = list(PROTOBUF_HEADERS)

    def write(self, number: int, completion: bytes) -> None:
        """``completion``: the record's value."""

        def end(delivery: Delivery) -> None:
            if delivery.error is not None:
                self._failed(number, delivery.error)
            else:
                self._ended.append(WriteEnded(number, delivery.offset))

        try:
            self._producer.produce(
                self._topic,
                self._lane,
                completion,
                headers=self._headers,
                on_delivery=end,
            )
        except BusError as error:
            self._failed(number, error)

    @property
    def is_holding(self) -> bool:
        """Whether the former waits for word that waits for acks (:meth:`ended`)."""
        return self._producer.is_holding

    def ended(self) -> list[WriteEnded]:
        """The writes that have ended since the last call. Never blocks."""
        self._producer.poll(0)
        ended, self._ended = self._ended, []
        return ended

    def _failed(self, number: int, error: BusError) -> None:
        self._metrics.produce_errors.labels(error.code).inc()
        self._ended.append(WriteEnded(number, None))
