"""KServe's Python server, which forms no batches: KServe's batcher is an agent in Go
beside it, which is in no Python package."""

from __future__ import annotations

from loadtest.peers.forms import v2
from loadtest.peers.peer import SERVING, Peer

# It answers in chunks.
_LAST_CHUNK = "\r\n0\r\n\r\n"

PEER = Peer(
    name="KServe",
    form=v2("binary", _LAST_CHUNK),
    settings="one worker, binary tensors, no latency log, the simulated accelerator in "
    "a thread; its Python server forms no batches and bounds no queue",
    command=lambda place: (place.python, SERVING / "on_kserve.py"),
)
