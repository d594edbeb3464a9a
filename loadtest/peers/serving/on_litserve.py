"""LitServe's server."""

from typing import Any

import litserve
import numpy as np
import served
from fastapi import Request


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.model = served.load()

    def decode_request(self, request: Request) -> Any:
        return np.array(request["x"], np.float32)

    def batch(self, inputs: Any) -> Any:
        return np.stack(inputs)

    def predict(self, x: Any) -> Any:
        return self.model(x)

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any) -> Any:
        return {"y": output.tolist()}


if __name__ == "__main__":
    api = Api(
        max_batch_size=served.MAX_BATCH, batch_timeout=0.0 if served.TINY else 0.002
    )
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        workers_per_device=1,
        fast_queue=True,
        restart_workers=True,
        timeout=0.1 if served.BOUNDED else 30,
    )
    server.run(
        host="127.0.0.1",
        port=served.PORT,
        num_api_servers=1,
        log_level="error",
        generate_client_file=False,
    )
