"""Requests as they were recorded, and as they were replayed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from headrace.domain import Datatype, Priority, ServedVersion, Source, Tensor
from headrace.replay import Ending, Recorded, Replayed
from headrace.wire import Record
from tests.wire.records import INGRESS, TOPICS, a_new_request, a_version

SERVED: ServedVersion = msgspec.structs.replace(
    a_version(), batch_axes={"x": 0, "label": 0, "scores": 0}
)
MS = 1_000


def labels(*values: int) -> Tensor:
    array = np.asarray(values, "<i8")
    return Tensor("label", Datatype.INT64, array.shape, array.tobytes())


def scores(*rows: Sequence[float]) -> Tensor:
    array = np.asarray(rows, "<f4")
    return Tensor("scores", Datatype.FP32, array.shape, array.tobytes())


def a_record(offset: int = 7, at_ms: int = 0, **changes: object) -> Record:
    request = a_new_request(client_id="mine", **changes)
    headers, value = INGRESS.encode(request, 0)
    topic = TOPICS.requests("digits")
    return Record(topic, 2, offset, at_ms * MS, None, value, headers)


def recorded(
    *outputs: Tensor,
    offset: int = 7,
    status: str = "ok",
    version: str = "1",
    is_ended: bool = True,
) -> Recorded:
    ending = Ending(
        place=Source(TOPICS.replies, 0, offset),
        at_us=(offset + 12) * MS,
        status=status,
        version=version if status == "ok" else "",
        outputs=outputs,
        run_us=500,
        batch_rows=3,
    )
    return Recorded(
        record=a_record(offset, offset),
        id=f"{offset:032x}",
        tenant="acme",
        model="digits",
        priority=Priority.STANDARD,
        rows=2,
        ending=ending if is_ended else None,
    )


def replayed(one: Recorded, *outputs: Tensor, status: str = "ok") -> Replayed:
    return Replayed(
        one,
        status,
        text="" if status == "ok" else "why",
        version="2" if status == "ok" else "",
        outputs=outputs,
        took_us=50 * MS,
    )
