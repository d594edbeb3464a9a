"""What the worker tells the former: by one producer, so that order is kept (W6)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.broker import Delivery, Producer
from headrace.delivery.events import WriteEnded
from headrace.domain import Completion
from headrace.errors import BusError
from headrace.telemetry import ProcessMetrics
from headrace.wire import PROTOBUF_HEADERS, encode_completion

__all__ = ["ControlWriter"]


class ControlWriter:
    """Writes completions of one lane; ``ended`` is told of each, from the thread that
    polls the producer or at once when nothing could be sent."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        lane: int,
        ended: Callable[[WriteEnded], None],
        metrics: ProcessMetrics,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._lane = lane
        self._ended = ended
        self._metrics = metrics

    def write(self, number: int, completion: Completion) -> None:
        def end(delivery: Delivery) -> None:
            if delivery.error is not None:
                self._failed(number, delivery.error)
            else:
                self._ended(WriteEnded(number, delivery.offset))

        try:
            self._producer.produce(
                self._topic,
                self._lane,
                encode_completion(completion),
                headers=PROTOBUF_HEADERS,
                on_delivery=end,
            )
        except BusError as error:
            self._failed(number, error)

    def _failed(self, number: int, error: BusError) -> None:
        self._metrics.produce_errors.labels(error.code).inc()
        self._ended(WriteEnded(number, None))
