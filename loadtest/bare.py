"""The accelerator without a platform: full batches, one after another.

``python -m loadtest.bare SECONDS`` reads the manifest as a line of JSON, prints
``ready``, begins at the next line, and prints how many rows per second it did. Its
sleep overshoots exactly as the worker's does, so what a platform can reach is this
figure rather than arithmetic.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from headrace.domain import Manifest
from headrace.runtime import SimulatedSession


def main() -> None:
    manifest = Manifest.model_validate_json(sys.stdin.readline())
    seconds = float(sys.argv[1])
    session = SimulatedSession(manifest)
    name, shape = manifest.inputs[0].name, manifest.inputs[0].shape[1:]
    sizes = (max(size, 1) for size in shape)
    batch = {name: np.zeros((manifest.max_batch, *sizes), np.float32)}
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    rows = 0
    while time.monotonic() - began < seconds:
        session.run(batch)
        rows += manifest.max_batch
    print(rows / (time.monotonic() - began))


if __name__ == "__main__":
    main()
