"""The device that sessions are made on, settled once, before any model is loaded.

ONNX Runtime falls back to the CPU without an error when CUDA does not load, and lists
of providers at module level name what was compiled in, not what works. So a session
of one node is made here and asked what it got.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import onnxruntime
from pydantic import BaseModel, PositiveInt

from headrace.errors import SetupError

__all__ = ["CUDA_NEEDS", "Device", "DeviceSettings", "Provider", "open_device"]

LOG_FATAL = 4
"""Every error of ONNX Runtime reaches us as an exception; it need not print it too."""

_IDENTITY = (
    b'\x08\x07:7\n\x10\n\x01X\x12\x01Y"\x08Identity\x12\x01i'
    b"Z\x0f\n\x01X\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01Y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
"""An ONNX file: ``Y = X``, FP32 of shape [1]."""


CUDA_NEEDS = (
    "install an NVIDIA driver with CUDA and cuDNN of the versions that onnxruntime-gpu "
    f"{onnxruntime.__version__} needs"
)


class Provider(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


_EXECUTION_PROVIDERS = {
    Provider.CPU: ["CPUExecutionProvider"],
    Provider.CUDA: ["CUDAExecutionProvider", "CPUExecutionProvider"],
}


_ARENAS = {Provider.CPU: "cpu:0", Provider.CUDA: "cpu:0;gpu:0"}
"""As a run's option names the memory arenas that it shrinks."""


class DeviceSettings(BaseModel, frozen=True, extra="forbid"):
    """What sessions run on."""

    provider: Literal["auto", "cpu", "cuda"] = "auto"
    """``cuda`` ends the process with a sentence where CUDA does not work; ``auto``
    takes it where it works, else the CPU, and says which in the log."""

    intra_op_threads: PositiveInt = 1
    """Threads of one run on the CPU. With 1 a row's answer is bit-equal alone and in
    a batch for most models; more are faster for large ones."""


class Device:
    """Where sessions are made, and how."""

    def __init__(self, provider: Provider, intra_op_threads: int) -> None:
        self.provider = provider
        self.execution_providers = _EXECUTION_PROVIDERS[provider]
        self.arenas = _ARENAS[provider]
        self.intra_op_threads = intra_op_threads

    def session_options(self) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = LOG_FATAL
        options.intra_op_num_threads = self.intra_op_threads
        options.inter_op_num_threads = 1
        return options


def open_device(settings: DeviceSettings) -> Device:
    """Raises :class:`headrace.errors.SetupError` when CUDA was asked for and ONNX
    Runtime takes something else."""
    onnxruntime.set_default_logger_severity(LOG_FATAL)
    cpu = Device(Provider.CPU, settings.intra_op_threads)
    if settings.provider == "cpu":
        return cpu
    cuda = Device(Provider.CUDA, settings.intra_op_threads)
    session = onnxruntime.InferenceSession(
        _IDENTITY, cuda.session_options(), providers=cuda.execution_providers
    )
    taken = session.get_providers()[0]
    if taken == cuda.execution_providers[0]:
        return cuda
    if settings.provider == "auto":
        return cpu
    raise SetupError(
        f"provider cuda was asked for, but ONNX Runtime takes {taken}: {CUDA_NEEDS}, "
        "or set the provider to auto or cpu"
    )
