"""MOSEC's server; its options are on the command line."""

from __future__ import annotations

from typing import Any

import numpy as np
import served
from mosec import Server, Worker


class Model(Worker):
    def __init__(self) -> None:
        super().__init__()
        self._run = served.load()

    def deserialize(self, data: bytes) -> Any:
        return np.frombuffer(data, np.float32)

    def forward(self, data: Any) -> Any:
        return list(self._run(np.stack(data)))

    def serialize(self, data: Any) -> bytes:
        return data.tobytes()


if __name__ == "__main__":
    server = Server()
    # 0 would mean its default, 10 ms.
    server.append_worker(
        Model,
        num=1,
        max_batch_size=served.MAX_BATCH,
        max_wait_time=2,
        start_method="spawn",
    )
    server.run()
