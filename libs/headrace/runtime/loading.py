"""A version folder to a session that is ready to run, with what is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from headrace.domain import Manifest
from headrace.runtime.device import Device
from headrace.runtime.layout import settle_layout
from headrace.runtime.onnx_session import OnnxSession
from headrace.runtime.probe import Probed, probe
from headrace.runtime.session import Session
from headrace.runtime.simulated import SimulatedSession

__all__ = ["Loaded", "load"]


class Loaded(NamedTuple):
    session: Session
    probed: Probed


def load(model: Path, manifest: Manifest, device: Device) -> Loaded:
    """Load and probe ``model``, an ONNX file, or make the simulated accelerator that
    the manifest describes. Raises :class:`headrace.errors.ModelRefused`."""
    if manifest.backend == "simulated":
        simulated = SimulatedSession(manifest)
        return Loaded(simulated, _known(simulated, manifest))
    session = OnnxSession(model, device)
    try:
        return Loaded(session, probe(session, manifest))
    except BaseException:
        session.close()
        raise


def _known(session: SimulatedSession, manifest: Manifest) -> Probed:
    """What a probe would find out, without its waiting."""
    layout = settle_layout(session.signature, session.dimensions, manifest)
    rows_max = manifest.max_batch
    fit = min(rows_max, session.memory_rows or rows_max)
    warnings = (
        (f"runs at most {fit} rows instead of {rows_max}: out of memory",)
        if fit < rows_max
        else ()
    )
    sizes = {1, 2, 3, fit}
    run_us = {rows: session.run_us(rows) for rows in sorted(sizes) if rows <= fit}
    return Probed(layout, fit, run_us, warnings)
