"""Tensors of recorded and replayed requests that are in the payload store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.domain import PayloadRef, Reason, Tensor
from headrace.errors import PayloadLost, StoreUnavailable
from headrace.replay.recorded import Ending, Recorded
from headrace.replay.running import Replayed
from headrace.wire.foreign import raw_inputs
from headrace.wire.payloads import read_dataref, tensors_from

__all__ = ["UNREADABLE", "Payloads"]

UNREADABLE = frozenset({Reason.PAYLOAD_LOST.value, Reason.STORE_UNAVAILABLE.value})
"""What becomes the status of an answer whose data cannot be had."""


class Payloads:
    """``read`` gives an object of the store, or raises PayloadLost or
    StoreUnavailable."""

    def __init__(self, read: Callable[[PayloadRef], memoryview]) -> None:
        self._read = read
        self._unread = 0
        self._why = ""

    @property
    def warnings(self) -> list[str]:
        """What whoever reads the result must know."""
        if not self._unread:
            return []
        return [f"{self._unread} answers are not compared, nor exported: {self._why}"]

    def with_data(self, replayed: Replayed) -> Replayed:
        """With the data of both answers, where they are elsewhere."""
        ending = replayed.recorded.ending
        if ending is not None and ending.payload is not None:
            recorded = self.recorded(replayed.recorded)
            replayed = msgspec.structs.replace(replayed, recorded=recorded)
        if replayed.payload is None:
            return replayed
        try:
            outputs = self._outputs(replayed.payload, replayed.outputs)
        except (PayloadLost, StoreUnavailable) as error:
            status, outputs, text = self._failed(error), (), str(error)
            return msgspec.structs.replace(
                replayed, status=status, text=text, outputs=outputs, payload=None
            )
        return msgspec.structs.replace(replayed, outputs=outputs, payload=None)

    def recorded(self, recorded: Recorded) -> Recorded:
        """With the data of its answer."""
        ending = recorded.ending
        if ending is None or ending.payload is None:
            return recorded
        try:
            outputs = self._outputs(ending.payload, ending.outputs)
            ending = msgspec.structs.replace(ending, outputs=outputs, payload=None)
        except (PayloadLost, StoreUnavailable) as error:
            status = self._failed(error)
            ending = Ending(ending.place, ending.at_us, status, str(error))
        return msgspec.structs.replace(recorded, ending=ending)

    def inputs(self, recorded: Recorded) -> tuple[Tensor, ...]:
        """Raises RequestError and UndecodableRecord for what is no request,
        PayloadLost and StoreUnavailable."""
        value = recorded.record.value or b""
        payload = read_dataref(dict(recorded.record.headers))
        content = None if payload is None else self._read(payload)
        return raw_inputs(value, payload, content)

    def _outputs(
        self, payload: PayloadRef, described: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        try:
            return tensors_from(payload, described, self._read(payload))
        except ValueError as error:
            raise PayloadLost("the answer's object does not fit") from error

    def _failed(self, error: PayloadLost | StoreUnavailable) -> str:
        """The status of an answer without its data."""
        if isinstance(error, PayloadLost):
            return Reason.PAYLOAD_LOST
        self._unread += 1
        self._why = str(error)
        return Reason.STORE_UNAVAILABLE
