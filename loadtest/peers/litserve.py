"""LitServe: FastAPI in front of a worker process that forms batches from a queue."""

from __future__ import annotations

from loadtest.peers.forms import plain_json
from loadtest.peers.peer import SERVING, Peer

PEER = Peer(
    name="LitServe",
    form=plain_json("/predict", "]}"),
    settings="max_batch_size 32, batch_timeout 0 (simulated: 2 ms), fast_queue, "
    "restart_workers, timeout 0.1 s under overload",
    command=lambda place: (place.python, SERVING / "on_litserve.py"),
)
