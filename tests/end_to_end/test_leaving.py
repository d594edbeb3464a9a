"""Clients that leave before their answer."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import UTC, datetime

import numpy as np
import pytest

from services.ctl.client import infer_request
from tests.end_to_end.platforms import Platform, Wire, eventually
from tests.end_to_end.test_tools import headrace

pytestmark = pytest.mark.kafka

CLIENTS = 12


def test_what_clients_leave_in_the_queue_is_not_run(platform: Platform) -> None:
    began = datetime.now(UTC).isoformat()
    rows_before, _ = platform.stats("lone")
    row = infer_request({"X": np.ones((1, 4), np.float32)})
    headers = [f"{name}: {value}" for name, value in row.headers.items()]
    with ExitStack() as stack:
        wires = [
            stack.enter_context(closing(Wire(platform.url, "lone")))
            for _ in range(CLIENTS)
        ]
        for wire in wires:
            wire.send(row.body, *headers)
        staying = wires.pop(0)
        answer = staying.answer()
        for wire in wires:
            wire.close()
        assert answer is not None
        assert answer[0] == 200

    def audit() -> tuple[int, dict[str, int]]:
        status, report = headrace(
            platform, "audit", "--from", began, "--model", "lone", "--json"
        )
        return status, report["counts"]

    # Two may be at the worker and one on its way there.
    eventually(lambda: audit()[1]["cancelled"] >= CLIENTS - 5, every_s=1)
    status, counts = audit()
    assert status == 0
    assert counts["requests"] == CLIENTS
    rows, _ = platform.stats("lone")
    assert rows - rows_before <= 5
    assert counts["successes"] + counts["cancelled"] >= CLIENTS
