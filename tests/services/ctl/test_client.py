from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest

from services.ctl.client import (
    Answer,
    Connection,
    InferRequest,
    infer_request,
    tensors_of,
)


@asynccontextmanager
async def server(
    *answers: bytes, connections: int = 1
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Answers one request after another with these bytes; an empty one closes.
    Waits at the end until so many connections are closed."""
    received: list[bytes] = []
    served = asyncio.Semaphore(0)
    left = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            for answer in left:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = head.lower().split(b"content-length: ")[1]
                length = int(fields.split(b"\r\n")[0])
                received.append(head + await reader.readexactly(length))
                if not answer:
                    break
                writer.write(answer)
            else:
                await reader.read()
        writer.close()
        await writer.wait_closed()
        served.release()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", received
        for _ in range(connections):
            await served.acquire()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-One: a\r\n\r\nhi"
REQUEST = InferRequest(b"body", {"x": "y"})


async def test_a_connection_is_used_again_and_made_again() -> None:
    async with server(OK, OK, b"", OK, connections=2) as (url, received):
        connection = Connection(url)

        answer = await connection.post("/a", REQUEST)
        await connection.post("/b", REQUEST)
        with pytest.raises(ConnectionError):
            await connection.post("/c", REQUEST)
        again = await connection.post("/d", REQUEST)
        connection.close()

    assert answer == Answer(200, {"content-length": "2", "x-one": "a"}, b"hi")
    assert again == answer
    assert [one.split(b" ")[1] for one in received] == [b"/a", b"/b", b"/c", b"/d"]
    assert received[0].endswith(b"\r\nx: y\r\n\r\nbody")


async def test_silence_ends_in_a_time_out() -> None:
    async with server(b"HTTP/1.1 ") as (url, _):
        connection = Connection(url)
        with pytest.raises(TimeoutError):
            await connection.post("/a", REQUEST, timeout_s=0.05)


def test_tensors_travel_as_bytes_both_ways() -> None:
    request = infer_request({"A": np.array([[1.5, 2]], np.float32)})
    length = int(request.headers["inference-header-content-length"])

    assert request.body[length:] == np.array([1.5, 2], "<f4").tobytes()

    header = (
        b'{"outputs":['
        b'{"name":"I","datatype":"INT64","shape":[2],'
        b'"parameters":{"binary_data_size":16}},'
        b'{"name":"B","datatype":"BOOL","shape":[1,1],'
        b'"parameters":{"binary_data_size":1}}]}'
    )
    body = header + np.array([7, -1], "<i8").tobytes() + b"\x01"
    headers = {"inference-header-content-length": str(len(header))}

    outputs = tensors_of(Answer(200, headers, body))

    assert outputs["I"].tolist() == [7, -1]
    assert outputs["B"].tolist() == [[True]]


def test_an_error_is_its_sentence_or_what_came_instead() -> None:
    assert Answer(400, {}, b'{"error": "no"}').error() == "no"
    assert Answer(502, {}, b"<html>").error() == "<html>"
