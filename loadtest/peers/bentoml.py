"""BentoML: Starlette, with adaptive batches in the server's process."""

from __future__ import annotations

from loadtest.peers.forms import plain_json
from loadtest.peers.peer import SERVING, Peer

PEER = Peer(
    name="BentoML",
    form=plain_json("/predict", "]]", batched=True),
    settings="one worker, batchable, max_batch_size 32, uvloop and httptools beside "
    "it, no access log; max_concurrency 128 and max_latency_ms 100 under overload",
    command=lambda place: (
        *(place.home / "bin/bentoml", "serve", "on_bentoml:Service"),
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--working-dir", SERVING),
    ),
    environment=lambda place: {
        "BENTOML_HOME": str(place.folder),
        "BENTOML_DO_NOT_TRACK": "True",
    },
)
