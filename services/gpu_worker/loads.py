"""How a version folder becomes something to run: its sum, its load, and a load apart.

A load runs the file's own kernels, and some end the process instead of raising: it
would end every process of the slot, one after the other, and with them all other
models. So whoever finds that the slot's process before ended while it loaded a version
loads that in a process apart first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.domain import Manifest
from headrace.errors import ModelRefused
from headrace.repository import (
    MODEL_NAME,
    Fingerprint,
    VersionKey,
    check_external_data,
    content_sha256,
    read_manifest,
    version_folder,
)
from headrace.runtime import Device, Loaded, Provider, load
from headrace.telemetry import Log, WorkerMetrics

__all__ = ["Loads"]


class Loads:
    """Of one models folder, onto one device. Whatever one version's files lead to is
    that version's refusal."""

    def __init__(
        self, folder: Path, device: Device, log: Log, metrics: WorkerMetrics
    ) -> None:
        self._folder = folder
        self._device = device
        self._log = log
        self._metrics = metrics

    def sha256(self, key: VersionKey, fingerprint: Fingerprint) -> str:
        """Raises :class:`headrace.errors.ModelRefused`, also when the files change."""
        with self._refusing(key):
            return content_sha256(self._folder, key, fingerprint)

    def load(self, key: VersionKey) -> tuple[Manifest, Loaded]:
        """Raises :class:`headrace.errors.ModelRefused`."""
        folder = version_folder(self._folder, key)
        with self._refusing(key):
            return _load(folder, self._device)

    def try_apart(self, key: VersionKey) -> None:
        """Load it in a process of its own. What that raises :meth:`load` does, too; a
        signal raises :class:`headrace.errors.ModelRefused`."""
        device = self._device
        arguments = (
            sys.executable,
            "-m",
            __name__,
            str(version_folder(self._folder, key)),
            device.provider,
            str(device.intra_op_threads),
        )
        with subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as apart:
            exit_code = apart.wait()
        if exit_code < 0:
            raise ModelRefused(
                f"to load it ends the process ({signal.Signals(-exit_code).name}): "
                "once a worker, then one that tried it apart"
            )

    @contextmanager
    def _refusing(self, key: VersionKey) -> Iterator[None]:
        try:
            yield
        except ModelRefused:
            raise
        except OSError as error:
            raise ModelRefused(
                f"a file of the version folder cannot be read: {error.strerror}"
            ) from error
        except Exception as error:  # the supervisor of one version's load
            self._metrics.loads.labels("failed").inc()
            self._log.error(
                "model.failed", model=key.model, version=key.version, exc_info=error
            )
            raise ModelRefused(
                f"loading it failed in a way that is not foreseen "
                f"({type(error).__name__}); the worker's log has the trace"
            ) from error


def _load(folder: Path, device: Device) -> tuple[Manifest, Loaded]:
    manifest = read_manifest(folder)
    if manifest.backend == "onnx":
        check_external_data(folder / MODEL_NAME)
    return manifest, load(folder / MODEL_NAME, manifest, device)


def _end_with_parent() -> None:
    """Its end closes our standard input, whatever a kernel is doing meanwhile."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def _try(folder: str, provider: str, intra_op_threads: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _load(Path(folder), Device(Provider(provider), int(intra_op_threads)))


if __name__ == "__main__":
    _try(*sys.argv[1:])
    os._exit(0)  # what else ends with a process is not on trial
