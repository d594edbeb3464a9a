"""KServe's Python server."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kserve
import served
from kserve import InferOutput, InferResponse
from kserve.utils.utils import generate_uuid


class Model(kserve.Model):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._run = served.load()
        self._thread = ThreadPoolExecutor(1)
        self.ready = True

    async def predict(
        self, payload: Any, headers: Any = None, response_headers: Any = None
    ) -> Any:
        rows = payload.inputs[0].as_numpy()
        if served.TINY:
            found = self._run(rows)
        else:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._thread, self._run, rows)
        output = InferOutput("y", list(found.shape), "FP32")
        output.set_data_from_numpy(found, binary_data=True)
        return InferResponse(
            payload.id or generate_uuid(),
            self.name,
            [output],
            use_binary_outputs=payload.use_binary_outputs,
        )


if __name__ == "__main__":
    logging.disable(logging.INFO)
    server = kserve.ModelServer(
        http_port=served.PORT,
        enable_grpc=False,
        workers=1,
        enable_latency_logging=False,
    )
    server.start([Model("model")])
