"""The two models, as every peer's server holds them in its worker.

Runs in the peer's own environment, with numpy and onnxruntime alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

Model = Callable[[Any], Any]
"""From (n, 64) to (n, 10), or to the same again; FP32."""

SCENARIO = os.environ["HEADRACE_PEER_SCENARIO"]
PORT = int(os.environ["HEADRACE_PEER_PORT"])
FOLDER = Path(os.environ["HEADRACE_PEER_FOLDER"])
TINY = SCENARIO == "tiny"
BOUNDED = SCENARIO == "overload"
"""More will be offered than can be answered within 100 ms."""
MAX_BATCH = 32


def load() -> Model:
    """The model of this scenario. The process that calls it is the worker, which one
    of the tests kills."""
    (FOLDER / "worker.pid").write_text(str(os.getpid()), "ascii")
    return _tiny() if TINY else _simulated


def _tiny() -> Model:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(os.environ["HEADRACE_PEER_MODEL"], options)

    def run(rows: Any) -> Any:
        return session.run(None, {"x": rows})[0]

    return run


_device = Lock()


def _simulated(rows: Any) -> Any:
    with _device:
        time.sleep(0.005 + 0.00025 * len(rows))
    return np.ascontiguousarray(rows)
