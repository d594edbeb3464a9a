"""Orders without their tensors, for the record of a batch's end.

A batch that goes to its worker by a link is in no record, so the worker's word of its
end says how it was ordered.
"""

from __future__ import annotations

from headrace.domain import Done
from headrace.errors import UndecodableRecord
from headrace.wire.batches import (
    BATCH_TENSORS,
    ORDER_BATCH,
    Batch,
    parse_order,
)
from headrace.wire.framing import fields, frame, leading

__all__ = ["order_of", "outlined"]


def outlined(value: memoryview) -> bytes:
    """The order of a batch without its tensors; :func:`parse_order` reads both."""
    _, content = next(fields(value))
    _, rest = leading(content, BATCH_TENSORS)
    return b"".join(frame(ORDER_BATCH, [rest]))


def order_of(done: Done) -> Batch | None:
    """How the batch was ordered, without its tensors; None: its order's own record
    says so.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    if not done.order:
        return None
    order = parse_order(memoryview(done.order))
    if not isinstance(order, Batch):
        raise UndecodableRecord("not the order of a batch")
    return order
