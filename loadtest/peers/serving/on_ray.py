"""Ray Serve's server: a cluster of its own with one replica."""

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import ray
import served
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(
    num_replicas=1,
    max_ongoing_requests=64 if served.BOUNDED else 1024,
    max_queued_requests=64 if served.BOUNDED else -1,
    ray_actor_options={"num_cpus": 1},
)
class Model:
    def __init__(self) -> None:
        self._run = served.load()
        self._thread = ThreadPoolExecutor(1)

    @serve.batch(
        max_batch_size=served.MAX_BATCH,
        batch_wait_timeout_s=0.002 if served.TINY else 0.01,
    )
    async def _batch(self, rows: list[Any]) -> list[Any]:
        loop = asyncio.get_running_loop()
        return list(await loop.run_in_executor(self._thread, self._run, np.stack(rows)))

    async def __call__(self, request: Request) -> Response:
        found = await self._batch(np.frombuffer(await request.body(), np.float32))
        return Response(found.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(served.FOLDER),
        object_store_memory=100_000_000,
    )
    serve.start(http_options={"host": "127.0.0.1", "port": served.PORT})
    serve.run(Model.bind(), logging_config={"enable_access_log": False})
    signal.sigwait({signal.SIGTERM})
    ray.shutdown()
