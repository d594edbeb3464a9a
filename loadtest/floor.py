"""The least that an HTTP server in Python costs: uvicorn with a raw ASGI app that
reads a body and answers always the same. ``python -m loadtest.floor PORT``."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

_BODY = bytes(170)
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(_BODY)),
    ],
}


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Whatever is asked for."""
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    await send(_START)
    await send({"type": "http.response.body", "body": _BODY})


if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
