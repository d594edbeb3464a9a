"""Why a run failed, by what may be done about it, and its text without our paths."""

from __future__ import annotations

import re
from enum import StrEnum

from headrace.errors import HeadraceError

__all__ = ["FailureKind", "RunFailed", "clean_text", "kind_of_text"]

TEXT_CHARS_MAX = 500
"""Longer texts are cut."""

TEXT_READ_MAX = 8_000
"""What of a text is looked at, since patterns are searched in it."""

_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_LOADED_FROM = re.compile(r"Load model from .*? failed:")
_NODE = re.compile(
    r"Non-zero status code returned while running (\S+ node)\. "
    r"Name:'[^']*' Status Message: "
)
_RAISED_AT = re.compile(r"/\S+\.(?:cc|h|cu|cuh):\d+ [^()]*\([^()]*\)(?:::\S+\(\))? ")
_CHECKED_AT = re.compile(r"\b\w+\.(?:cc|h|cu|cuh):\d+ \w+ ")
_PATH = re.compile(r"(?<![\w./<])(?:\.{0,2}/(?:[\w.+-]+/)*|(?:[\w.+-]+/){2,})[\w.+-]+")
"""A word with one slash, such as "function/op", is none."""


_OUT_OF_MEMORY = (
    "Failed to allocate memory",
    "Failed to find a free memory block",
    "bfc_arena.cc",
    "out of memory",
    "ALLOC_FAILED",
)
_STOPPED = "terminate flag"
_CUDA_FAILURE = re.compile(r"\bCUDA failure (\d+):")
_CUDA_LOST = frozenset(
    # What the CUDA runtime calls sticky (cudaError_t): the context is corrupt and the
    # process must end. ECC, MPS, illegal address, time-out, assert, hardware stack,
    # illegal instruction, misaligned or foreign address, program counter, launch.
    {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 805, 999}
)


class FailureKind(StrEnum):
    """What the failure says of batch and model."""

    INPUT = "input"
    """The sender's: running it again cannot succeed."""
    MEMORY = "memory"
    """Out of memory: fewer rows may run."""
    STOPPED = "stopped"
    """Stopped from outside, for it ran too long."""
    DEVICE = "device"
    """The device is lost to this process: every later run fails, too."""
    MODEL = "model"


class RunFailed(HeadraceError):
    """A run raised; the text is fit for a client."""

    def __init__(self, kind: FailureKind, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def kind_of_text(text: str) -> FailureKind | None:
    """What a text of ONNX Runtime says of itself; None: nothing, its class does."""
    cuda = _CUDA_FAILURE.search(text)
    if cuda and int(cuda[1]) in _CUDA_LOST:
        return FailureKind.DEVICE
    if any(word in text for word in _OUT_OF_MEMORY):
        return FailureKind.MEMORY
    return FailureKind.STOPPED if _STOPPED in text else None


def clean_text(text: str) -> str:
    """A text of ONNX Runtime on one line, without codes, source places and paths."""
    line = " ".join(text[:TEXT_READ_MAX].split())
    line = _LOADED_FROM.sub("", _CODE.sub("", line))
    line = _CHECKED_AT.sub("", _RAISED_AT.sub("", line))
    line = _PATH.sub("<path>", _NODE.sub(r"\1: ", line))
    return line if len(line) <= TEXT_CHARS_MAX else f"{line[:TEXT_CHARS_MAX]}..."
