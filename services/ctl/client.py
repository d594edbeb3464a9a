"""A client of the inference protocol's HTTP form, cheap enough to load a server.

One keep-alive connection per object, binary tensors both ways. A general client spends
about ten times as much of the processor per request, which on the machine that also
runs the services would be measured as theirs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import numpy as np
import numpy.typing as npt

from headrace.domain import Datatype

__all__ = ["Answer", "Connection", "InferRequest", "infer_request", "tensors_of"]

Tensors = Mapping[str, npt.NDArray[Any]]

_NUMPY = {each: np.dtype(each.typestr) for each in Datatype if each.typestr}
_DATATYPE = {dtype: datatype for datatype, dtype in _NUMPY.items()}
_HEADER_LENGTH = "inference-header-content-length"


class InferRequest(NamedTuple):
    """Body and headers of one request."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def error(self) -> str:
        """The server's sentence about a refusal."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return self.body[:200].decode(errors="replace")


def infer_request(
    inputs: Tensors, *, parameters: Mapping[str, object] | None = None
) -> InferRequest:
    """A request with binary tensors that asks for binary answers."""
    header: dict[str, object] = {
        "inputs": [
            {
                "name": name,
                "shape": list(value.shape),
                "datatype": _DATATYPE[value.dtype],
                "parameters": {"binary_data_size": value.nbytes},
            }
            for name, value in inputs.items()
        ],
        "parameters": {"binary_data_output": True, **(parameters or {})},
    }
    text = json.dumps(header).encode()
    body = b"".join([text, *(value.tobytes() for value in inputs.values())])
    return InferRequest(body, {_HEADER_LENGTH: str(len(text))})


def tensors_of(answer: Answer) -> dict[str, npt.NDArray[Any]]:
    """The outputs of a successful binary answer, without copies."""
    length = int(answer.headers[_HEADER_LENGTH])
    header = json.loads(answer.body[:length])
    found: dict[str, npt.NDArray[Any]] = {}
    start = length
    for output in header["outputs"]:
        end = start + output["parameters"]["binary_data_size"]
        flat = np.frombuffer(
            memoryview(answer.body)[start:end], _NUMPY[Datatype(output["datatype"])]
        )
        found[output["name"]] = flat.reshape(output["shape"])
        start = end
    return found


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, base_url: str) -> None:
        address = urlsplit(base_url)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port or 80
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    async def post(
        self, path: str, request: InferRequest, *, timeout_s: float = 30.0
    ) -> Answer:
        """Send ``request`` and wait for its answer.

        Raises ConnectionError if the connection cannot be had or breaks, TimeoutError
        if nothing comes in time; a later call connects again.
        """
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            self._parser = httptools.HttpResponseParser(self)
            await loop.create_connection(lambda: self, self._host, self._port)
        assert self._transport is not None
        lines = [
            f"POST {path} HTTP/1.1",
            f"host: {self._host}:{self._port}",
            f"content-length: {len(request.body)}",
            *(f"{name}: {value}" for name, value in request.headers.items()),
        ]
        head = "\r\n".join([*lines, "", ""]).encode()
        self._waiter = loop.create_future()
        self._transport.writelines((head, request.body))
        try:
            async with asyncio.timeout(timeout_s):
                return await self._waiter
        except (TimeoutError, asyncio.CancelledError):
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the server sent no HTTP: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # Called by the parser, by these names.

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._waiter is not None and not self._waiter.done():
            answer = Answer(status, self._headers, b"".join(self._body))
            self._waiter.set_result(answer)
        if not self._parser.should_keep_alive():
            self.close()
