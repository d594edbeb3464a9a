"""The accelerator without a platform: full batches, one after another.

``python -m loadtest.bare`` reads the manifest as JSON from stdin, starts at the given
instant, and prints how many rows per second it did. Its sleep overshoots exactly as
the worker's does, so what a platform can reach is this figure rather than arithmetic.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from headrace.domain import Manifest
from headrace.runtime import SimulatedSession

__all__ = ["rows_per_second"]


def rows_per_second(manifest: Manifest, start_ns: int, seconds: float) -> float:
    """Run full batches from ``start_ns`` of the monotonic clock on."""
    session = SimulatedSession(manifest)
    name, shape = manifest.inputs[0].name, manifest.inputs[0].shape[1:]
    sizes = (max(size, 1) for size in shape)
    batch = {name: np.zeros((manifest.max_batch, *sizes), np.float32)}
    time.sleep(max(0, start_ns - time.monotonic_ns()) / 1e9)
    began = time.monotonic()
    runs = 0
    while time.monotonic() - began < seconds:
        session.run(batch)
        runs += 1
    return runs * manifest.max_batch / (time.monotonic() - began)


if __name__ == "__main__":
    given = Manifest.model_validate_json(sys.stdin.read())
    print(rows_per_second(given, int(sys.argv[1]), float(sys.argv[2])))
