"""Models on a device: loading, probing, running, and the way of a batch's bytes into
arrays and back. The only place that knows ONNX Runtime."""

from headrace.runtime.batching import (
    BatchInput,
    MemberFault,
    Misfit,
    assemble,
    share_out,
)
from headrace.runtime.device import (
    CUDA_NEEDS,
    Device,
    DeviceSettings,
    Provider,
    open_device,
)
from headrace.runtime.failures import FailureKind, RunFailed
from headrace.runtime.layout import Layout, settle_layout
from headrace.runtime.loading import Loaded, load
from headrace.runtime.onnx_session import OnnxSession
from headrace.runtime.probe import Probed, probe
from headrace.runtime.session import NUMPY_TYPES, Array, Session
from headrace.runtime.simulated import SimulatedSession

__all__ = [
    "CUDA_NEEDS",
    "NUMPY_TYPES",
    "Array",
    "BatchInput",
    "Device",
    "DeviceSettings",
    "FailureKind",
    "Layout",
    "Loaded",
    "MemberFault",
    "Misfit",
    "OnnxSession",
    "Probed",
    "Provider",
    "RunFailed",
    "Session",
    "SimulatedSession",
    "assemble",
    "load",
    "open_device",
    "probe",
    "settle_layout",
    "share_out",
]
