"""Lines of batches, for a model with one input."""

from __future__ import annotations

import json
from typing import Any

from headrace.domain import Datatype, ServedVersion
from services.ingress.batches.reading import Line
from services.ingress.parsing import RequestParser
from tests.jobs.worlds import a_version

ENDPOINT = "/v2/models/m/infer"


def a_served() -> ServedVersion:
    """Two numbers a row in ``x``, out as ``y``."""
    return a_version(
        ("x", Datatype.FP32, (-1, 2)), outputs=(("y", Datatype.FP32, (-1, 2)),)
    )


def a_parser() -> RequestParser:
    return RequestParser(a_served(), payload_bytes_max=4096, element_text_bytes=32)


def a_body(data: list[float], shape: list[int] | None = None, **more: Any) -> Any:
    given = {"name": "x", "shape": shape or [1, 2], "datatype": "FP32", "data": data}
    return {"inputs": [given], **more}


def a_line(item: int = 0, /, **changes: Any) -> Line:
    """A good line, but for the changes; None takes a part away."""
    parts = {
        "custom_id": f"id-{item}",
        "method": "POST",
        "url": ENDPOINT,
        "body": a_body([1, 2]),
    } | changes
    told = {name: value for name, value in parts.items() if value is not None}
    return Line(item, item + 1, json.dumps(told).encode())
