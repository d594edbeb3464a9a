"""What the services will say of their settings, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.lifecycle import read_settings

__all__ = ["check_settings"]


def check_settings(environ: Mapping[str, str]) -> None:
    """Raises SetupError, as each of them would once it runs."""
    if not any(name.startswith("HEADRACE_") for name in environ):
        return
    # A quarter of a second, in which most who start a platform have set nothing.
    from services.batch_former.settings import FormerSettings  # noqa: PLC0415
    from services.gpu_worker.settings import GpuWorkerSettings  # noqa: PLC0415
    from services.ingress.settings import IngressSettings  # noqa: PLC0415

    read_settings(IngressSettings, environ)
    read_settings(FormerSettings, environ)
    read_settings(GpuWorkerSettings, environ)
