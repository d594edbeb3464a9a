"""The models of a scenario: their folders, and requests for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from headrace.domain import Datatype, Manifest, SimulatedInput
from loadtest.scenario import Mlp, Model, Simulated, Stream
from loadtest.stream import Prepared
from services.ctl.client import infer_request

__all__ = ["manifest_of", "prepare", "prepare_row", "tiny_onnx", "write_models"]

_INPUT = "x"
_VARIANTS = 64
"""Different tensors per shape, so that a mixed-up answer is seen."""

_WIDTH = 64
_MLP_SIZES = (_WIDTH, 256, 256, 10)


def write_models(folder: Path, models: dict[str, Model]) -> None:
    """Write ``<folder>/<name>/1`` for each model."""
    for name, model in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        lines = [f"max_batch = {model.max_batch}"]
        if model.objective_ms is not None:
            lines.append(f"latency_objective_ms = {model.objective_ms}")
        if isinstance(model, Simulated):
            inputs = f'name = "{_INPUT}", datatype = "FP32"'
            lines += [
                'backend = "simulated"',
                f"alpha_ms = {model.alpha_ms}",
                f"beta_ms = {model.beta_ms}",
                f"inputs = [{{ {inputs}, shape = {[-1, *model.shape]} }}]",
            ]
        else:
            (version / "model.onnx").write_bytes(tiny_onnx())
        (version / "model.toml").write_text("\n".join(lines) + "\n")


def manifest_of(model: Simulated) -> Manifest:
    """What the worker makes of the folder."""
    given = SimulatedInput(
        name=_INPUT, datatype=Datatype.FP32, shape=(-1, *model.shape)
    )
    return Manifest(
        backend="simulated",
        max_batch=model.max_batch,
        alpha_ms=model.alpha_ms,
        beta_ms=model.beta_ms,
        inputs=(given,),
    )


def prepare(stream: Stream, model: Model, seed: int) -> list[Prepared]:
    """Requests of one row each, their shapes in turn."""
    own = (_WIDTH,) if isinstance(model, Mlp) else model.shape
    usual = tuple(_WIDTH if size < 0 else size for size in own)
    shapes: Sequence[tuple[int, ...]] = stream.shapes or (usual,)
    dice = np.random.default_rng(seed)
    return [
        _prepared(stream, dice.random((1, *shape), np.float32), model)
        for _ in range(_VARIANTS)
        for shape in shapes
    ]


def _prepared(
    stream: Stream, row: np.ndarray[tuple[int, ...]], model: Model
) -> Prepared:
    # A product of matrices differs in its last bits from batch to batch.
    end = b"" if isinstance(model, Mlp) else row.tobytes()
    return prepare_row(stream, _INPUT, row, end)


def prepare_row(
    stream: Stream, name: str, row: np.ndarray[tuple[int, ...]], answer_end: bytes
) -> Prepared:
    """A request of this one row, as the input ``name``."""
    request = infer_request({name: row})
    lines = [
        f"POST /v2/models/{stream.model}/infer HTTP/1.1",
        "host: 127.0.0.1",
        "content-type: application/octet-stream",
        *(f"{name}: {value}" for name, value in request.headers.items()),
        f"content-length: {len(request.body)}",
    ]
    if stream.priority != "standard":
        lines.append(f"headrace-priority: {stream.priority}")
    if stream.timeout_ms is not None:
        lines.append(f"headrace-timeout-ms: {stream.timeout_ms}")
    if stream.tenant != "default":
        lines.append(f"headrace-tenant: {stream.tenant}")
    wire = "\r\n".join([*lines, "", ""]).encode() + request.body
    return Prepared(wire, answer_end)


def tiny_onnx() -> bytes:
    """The ONNX file of an ``mlp``."""
    dice = np.random.default_rng(0)
    nodes, constants = [], []
    at = _INPUT
    for layer, (rows, columns) in enumerate(pairwise(_MLP_SIZES)):
        weight = dice.standard_normal((rows, columns)) / np.sqrt(rows)
        names = f"w{layer}", f"b{layer}"
        constants += [
            numpy_helper.from_array(weight.astype(np.float32), names[0]),
            numpy_helper.from_array(np.zeros(columns, np.float32), names[1]),
        ]
        last = layer == len(_MLP_SIZES) - 2
        made = "y" if last else f"g{layer}"
        nodes.append(helper.make_node("Gemm", [at, *names], [made]))
        if not last:
            at = f"r{layer}"
            nodes.append(helper.make_node("Relu", [made], [at]))
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info(_INPUT, TensorProto.FLOAT, ["n", _WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model.SerializeToString()
