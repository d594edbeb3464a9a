"""Served versions to hold columns against."""

from __future__ import annotations

from headrace.domain import Datatype, ServedVersion, Signature, TensorSpec


def a_version(
    *inputs: tuple[str, Datatype, tuple[int, ...]],
    outputs: tuple[tuple[str, Datatype, tuple[int, ...]], ...] = (),
    axes: dict[str, int] | None = None,
    max_batch: int = 8,
) -> ServedVersion:
    """Batch axis 0 everywhere unless ``axes`` says otherwise."""
    specs = [TensorSpec(*each) for each in inputs]
    told = [TensorSpec(*each) for each in outputs]
    names = [spec.name for spec in (*specs, *told)]
    return ServedVersion(
        model="m",
        version="1",
        signature=Signature(tuple(specs), tuple(told)),
        sha256="0",
        max_batch=max_batch,
        batch_axes=dict.fromkeys(names, 0) if axes is None else axes,
        padding=None,
        latency_objective_us=None,
        run_us={},
        ready_slots=frozenset({0}),
        unloading_slots=frozenset(),
    )
