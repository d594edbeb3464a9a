"""MLServer: FastAPI, with batches in the server's process and a worker beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from loadtest.peers.forms import MODEL, v2
from loadtest.peers.peer import SERVING, Peer, Place
from loadtest.peers.servers import free_port


def _command(place: Place) -> Sequence[str | Path]:
    """Writes the server's two files."""
    server = {
        "host": "127.0.0.1",
        "http_port": place.port,
        "grpc_port": free_port(),
        "metrics_endpoint": None,
        "parallel_workers": 1,
    }
    model = {
        "name": MODEL,
        "implementation": "on_mlserver.Runtime",
        "max_batch_size": 32,
        # It closes a batch on its timer, also while the worker is busy: 2 ms are best
        # in closed loops, and with Poisson arrivals make batches of two or three.
        "max_batch_time": 0.002 if place.tiny else 0.005,
    }
    (place.folder / "settings.json").write_text(json.dumps(server), "utf-8")
    (place.folder / "model-settings.json").write_text(json.dumps(model), "utf-8")
    return place.home / "bin/mlserver", "start", place.folder


PEER = Peer(
    name="MLServer",
    form=v2("JSON", "]}]}"),
    settings="parallel_workers 1, max_batch_size 32, max_batch_time 2 ms (simulated: "
    "5 ms), no metrics; it bounds no queue",
    command=_command,
    environment=lambda _: {"PYTHONPATH": str(SERVING)},
)
