"""Ray Serve, with HAProxy in front, as its guide to throughput says."""

from __future__ import annotations

from loadtest.peers.forms import raw
from loadtest.peers.peer import SERVING, Peer

PEER = Peer(
    name="Ray Serve",
    form=raw("/"),
    settings="RAY_SERVE_THROUGHPUT_OPTIMIZED, RAY_SERVE_ENABLE_HA_PROXY, one replica, "
    "max_ongoing_requests 1024, @serve.batch of 32 with 2 ms (simulated: 10 ms), the "
    "model in a thread, no access log; max_ongoing_requests and max_queued_requests "
    "64 under overload",
    command=lambda place: (place.python, SERVING / "on_ray.py"),
    environment=lambda _: {
        "PYTHONPATH": str(SERVING),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
    },
)
