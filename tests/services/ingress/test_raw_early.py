"""Requests that are answered before their end: what still comes of them is dropped."""

import socket
import time

import pytest

from tests.services.ingress.pipeline import HASTE_MS, IngressProcess
from tests.services.ingress.test_raw_sockets import GOOD, PATH, connected, head

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("size", [5 * 2**20, 40 * 2**20])
def test_a_body_above_the_limit_is_refused_at_its_length_and_dropped(
    ingress: IngressProcess, size: int
) -> None:
    with connected(ingress) as client:
        client.send(head(size))
        answer = client.read()
        assert (answer.status, answer.headers["headrace-reason"]) == (413, "too_large")
        assert str(4 * 2**20) in answer.error
        # A client that only reads when it has sent all can do so.
        client.send(bytes(size))
        assert client.is_closed()


def test_what_follows_an_answer_in_its_own_body_gets_no_second_one(
    ingress: IngressProcess,
) -> None:
    with connected(ingress) as client:
        client.send(
            b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
            b"500000\r\n%b\r\n" % (PATH.encode(), bytes(5 * 2**20))
        )
        assert client.read().status == 413
        client.send(b"zz\r\n")
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()


def test_a_body_that_nobody_reads_leaves_the_connection_in_step(
    ingress: IngressProcess,
) -> None:
    with connected(ingress) as client:
        client.send(head(40 * 2**20, path="/v2/models/echo/generate"))
        assert client.read().status == 501
        client.send(bytes(40 * 2**20) + GOOD)
        assert client.read().status == 200
        client.send(b"GET /v2 HTTP/1.1\r\n\r\n")  # without a host
        assert client.read().status == 400


def test_what_is_left_of_a_refused_body_is_dropped_for_a_while_only(
    hasty: IngressProcess,
) -> None:
    with connected(hasty) as client:
        started = time.monotonic()
        client.send(head(5 * 2**20))
        assert client.read().status == 413
        assert client.is_closed()
        assert time.monotonic() - started > HASTE_MS / 1000
