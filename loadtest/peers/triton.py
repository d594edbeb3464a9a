"""Triton: the server and python backend that nvidia-pytriton's wheel bundles, run as
plain Triton. It needs neither a GPU nor its driver; no other backend is in the wheel,
so the tiny model runs in ONNX Runtime inside model.py."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.peers.forms import MODEL, v2
from loadtest.peers.peer import SERVING, Peer, Place

_CONFIG = """
name: "{model}"
backend: "python"
max_batch_size: 32
input [{{ name: "x", data_type: TYPE_FP32, dims: [64] }}]
output [{{ name: "y", data_type: TYPE_FP32, dims: [{outputs}] }}]
instance_group [{{ count: 1, kind: KIND_CPU }}]
dynamic_batching {{ max_queue_delay_microseconds: {delay_us} {policy} }}
"""
_BOUNDED = (
    ", default_queue_policy "
    "{ timeout_action: REJECT, default_timeout_microseconds: 80000 }"
)


def _bundled(place: Place) -> Path:
    return place.packages / "pytriton/tritonserver"


def _command(place: Place) -> Sequence[str | Path]:
    """Lays out the repository, and the backend with the stub of this Python."""
    model = place.folder / "models" / MODEL
    (model / "1").mkdir(parents=True)
    config = _CONFIG.format(
        model=MODEL,
        outputs=10 if place.tiny else 64,
        delay_us=1000 if place.tiny else 2000,
        policy=_BOUNDED if place.bounded else "",
    )
    (model / "config.pbtxt").write_text(config, "ascii")
    shutil.copy(SERVING / "on_triton.py", model / "1/model.py")
    shutil.copy(SERVING / "served.py", model / "1")
    backend = place.folder / "backends/python"
    backend.mkdir(parents=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = _bundled(place) / "python_backend_stubs" / version
    for source in (_bundled(place) / "backends/python", stub):
        for file in source.iterdir():
            (backend / file.name).symlink_to(file)
    return (
        *(_bundled(place) / "bin/tritonserver", "--model-repository", model.parent),
        *("--backend-directory", backend.parent),
        f"--backend-config=python,shm-region-prefix-name=headrace{place.port}",
        *("--http-address", "127.0.0.1", "--http-port", str(place.port)),
        *("--http-thread-count", "2", "--allow-grpc", "false"),
        *("--allow-metrics", "false", "--log-info", "false"),
    )


def _environment(place: Place) -> Mapping[str, str]:
    # The stub must meet the libpython of the interpreter whose library it imports.
    own = sysconfig.get_config_var("LIBDIR") or ""
    vendored = place.packages / "nvidia_pytriton.libs"
    return {
        "LD_LIBRARY_PATH": f"{own}:{vendored}",
        "PATH": f"{place.home / 'bin'}:{os.environ['PATH']}",
    }


PEER = Peer(
    name="Triton",
    form=v2("binary"),
    settings="the server of nvidia-pytriton's wheel, python backend, one CPU instance, "
    "dynamic batching up to 32 with a queue delay of 1 ms (simulated: 2 ms), two HTTP "
    "threads, no metrics; requests time out in the queue after 80 ms under overload",
    command=_command,
    environment=_environment,
)
