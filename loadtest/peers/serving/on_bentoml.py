"""BentoML's service; `bentoml serve` imports it."""

from typing import Annotated

import bentoml
import numpy as np
import served
from bentoml.validators import DType, Shape

Rows = Annotated[np.ndarray, DType("float32"), Shape((-1, 64))]


@bentoml.service(
    workers=1,
    logging={"access": {"enabled": False}},
    traffic={"max_concurrency": 128} if served.BOUNDED else {},
)
class Service:
    def __init__(self) -> None:
        self._run = served.load()

    @bentoml.api(
        batchable=True,
        max_batch_size=served.MAX_BATCH,
        max_latency_ms=100 if served.BOUNDED else 60_000,
    )
    def predict(self, x: Rows) -> np.ndarray:
        return self._run(x)
