"""Served versions for the tests."""

from headrace.domain import Datatype, Padding, ServedVersion, Signature, TensorSpec
from services.ingress.parsing import RequestParser


def a_version(
    *inputs: tuple[str, Datatype, tuple[int, ...]],
    outputs: tuple[tuple[str, Datatype, tuple[int, ...]], ...] = (),
    model: str = "m",
    version: str = "1",
    max_batch: int = 8,
    padding: Padding | None = None,
    ready_slots: frozenset[int] = frozenset({0}),
    latency_objective_us: int | None = None,
) -> ServedVersion:
    """A model whose outputs repeat its inputs as Y, Y1, ... unless given; axis 0 is
    the batch axis of every tensor with a variable dimension 0."""
    specs = tuple(TensorSpec(*given) for given in inputs or (("X", FP32, (-1, 4)),))
    outs = tuple(TensorSpec(*given) for given in outputs) or tuple(
        TensorSpec(f"Y{index or ''}", spec.datatype, spec.shape)
        for index, spec in enumerate(specs)
    )
    return ServedVersion(
        model=model,
        version=version,
        signature=Signature(specs, outs),
        sha256="0" * 64,
        max_batch=max_batch,
        batch_axes={
            spec.name: 0 for spec in (*specs, *outs) if spec.shape[:1] == (-1,)
        },
        padding=padding,
        latency_objective_us=latency_objective_us,
        run_us={1: 1000},
        ready_slots=ready_slots,
        unloading_slots=frozenset(),
    )


def a_parser(served: ServedVersion) -> RequestParser:
    """With the limits of a process that nobody has set up otherwise."""
    return RequestParser(served, payload_bytes_max=2**20, element_text_bytes=32)


FP32 = Datatype.FP32
