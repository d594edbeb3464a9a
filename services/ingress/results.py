"""Results as one record of replies brings them: what they share is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.domain import Priority, Tensor
from headrace.wire import Replies
from services.ingress.answers import Piece, identity_fields, result_answer
from services.ingress.exchange import Exchange
from services.ingress.parsing import WantedOutput

__all__ = ["Results"]


class _Told(NamedTuple):
    """An answer in which everything but the outputs' values is another one's, too."""

    wanted: tuple[WantedOutput, ...]
    shapes: tuple[tuple[tuple[int, ...], int], ...]
    """Of each output, and its bytes."""

    places: tuple[int, ...]
    """In the record, of the outputs that are wanted, in their order."""

    fields: bytes
    """Header lines but for the identity."""

    text: bytes


class Results:
    """The results that one record holds, and how long those took that were sent."""

    __slots__ = ("_told", "latencies_us", "record", "rows")

    def __init__(self, record: Replies) -> None:
        self.record = record
        self.latencies_us: dict[Priority, list[int]] = {}
        self.rows = 0
        self._told: _Told | None = None

    def took(self, priority: Priority, latency_us: int, rows: int) -> None:
        self.rows += rows
        latencies_us = self.latencies_us.get(priority)
        if latencies_us is None:
            self.latencies_us[priority] = [latency_us]
        else:
            latencies_us.append(latency_us)

    def answer(
        self, exchange: Exchange, outputs: Sequence[Tensor]
    ) -> tuple[bytes, Sequence[Piece]]:
        """As :func:`services.ingress.answers.result_answer`."""
        head = exchange.head
        if exchange.client_id or head.accept_encoding:
            record = self.record
            return result_answer(exchange, record.model, record.version, outputs)
        told = self._told
        if (
            told is None
            or told.wanted is not exchange.wanted
            or told.shapes != tuple([(one.shape, len(one.data)) for one in outputs])
        ):
            return self._first_of_its_kind(exchange, outputs)
        fields = identity_fields(exchange.request_id, head.x_request_id) + told.fields
        return fields, (told.text, *[outputs[place].data for place in told.places])

    def _first_of_its_kind(
        self, exchange: Exchange, outputs: Sequence[Tensor]
    ) -> tuple[bytes, Sequence[Piece]]:
        record, wanted = self.record, exchange.wanted
        fields, body = result_answer(exchange, record.model, record.version, outputs)
        if all(binary for _, binary in wanted):
            identity = identity_fields(exchange.request_id, exchange.head.x_request_id)
            place_of = {output.name: place for place, output in enumerate(outputs)}
            self._told = _Told(
                wanted,
                tuple([(one.shape, len(one.data)) for one in outputs]),
                tuple([place_of[name] for name, _ in wanted]),
                fields.removeprefix(identity),
                bytes(body[0]),
            )
        return fields, body
