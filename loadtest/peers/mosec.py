"""MOSEC: a Rust server and batcher in front of Python processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.peers.forms import raw
from loadtest.peers.peer import SERVING, Peer, Place


def _command(place: Place) -> Sequence[str | Path]:
    bounds = ("--capacity", "128", "--timeout", "100") if place.bounded else ()
    return (
        *(place.python, SERVING / "on_mosec.py", "--address", "127.0.0.1"),
        *("--port", str(place.port), "--log-level", "error", *bounds),
    )


PEER = Peer(
    name="MOSEC",
    form=raw("/inference"),
    settings="max_batch_size 32, max_wait_time 2 ms, capacity 128 and timeout 100 ms "
    "under overload",
    command=_command,
)
