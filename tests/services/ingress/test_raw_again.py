"""A connection on which the same head comes again and again."""

import json
import struct
import time

import pytest

from tests.services.ingress.pipeline import IngressProcess
from tests.services.ingress.test_raw_sockets import (
    Answer,
    a_binary,
    a_request,
    connected,
    json_length,
)

pytestmark = pytest.mark.kafka


def test_a_head_that_comes_again_leaves_the_connection_in_step(
    ingress: IngressProcess,
) -> None:
    def given(answer: Answer) -> list[float]:
        return json.loads(answer.body)["outputs"][0]["data"]  # type: ignore[no-any-return] # JSON

    text = a_binary(16)
    rows = [[n, n + 1, n + 2, n + 3] for n in range(4)]
    requests = [
        a_request(text + struct.pack("<4f", *row), json_length(len(text)))
        for row in rows
    ]
    with connected(ingress) as client:
        for row, request in zip(rows, requests, strict=True):
            client.send(request)
            assert given(client.read()) == row
        # Cut in the middle, two in one piece, and something else in between.
        client.send(requests[0][:50])
        time.sleep(0.05)
        client.send(requests[0][50:])
        assert given(client.read()) == rows[0]
        client.send(requests[1] + requests[2])
        assert given(client.read()) == rows[1]
        assert given(client.read()) == rows[2]
        client.send(b"GET /v2/health/live HTTP/1.1\r\nhost: h\r\n\r\n")
        assert client.read().status == 200
        client.send(requests[3])
        assert given(client.read()) == rows[3]
        client.send(requests[2].replace(b"host: h", b"host: g"))
        assert given(client.read()) == rows[2]
