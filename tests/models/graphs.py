"""Small ONNX models, each for one trait; axis 0 is the batch unless its builder says
otherwise. Every builder returns the file's bytes, to be put into a version folder by
:func:`tests.models.folders.put_version`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

DATATYPES = {
    "BOOL": T.BOOL,
    "UINT8": T.UINT8,
    "UINT16": T.UINT16,
    "UINT32": T.UINT32,
    "UINT64": T.UINT64,
    "INT8": T.INT8,
    "INT16": T.INT16,
    "INT32": T.INT32,
    "INT64": T.INT64,
    "FP16": T.FLOAT16,
    "BF16": T.BFLOAT16,
    "FP32": T.FLOAT,
    "FP64": T.DOUBLE,
    "BYTES": T.STRING,
}

node = helper.make_node
value = helper.make_tensor_value_info


def constant(name: str, array: object) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 17,
) -> bytes:
    graph = helper.make_graph(list(nodes), name, inputs, outputs, list(constants))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 8
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def identity(datatype: str) -> bytes:
    """``Y = X`` of shape [n, d], for every datatype of the protocol."""
    kind = DATATYPES[datatype]
    return model(
        "identity",
        [node("Identity", ["X"], ["Y"])],
        [value("X", kind, ["n", "d"])],
        [value("Y", kind, ["n", "d"])],
    )


def addsub(offset: int = 0) -> bytes:
    """``OUTPUT0 = INPUT0 + INPUT1 + offset`` and ``OUTPUT1 = INPUT0 - INPUT1`` over
    INT32 [n, 16]; ``offset`` tells versions apart."""

    def io(name: str) -> onnx.ValueInfoProto:
        return value(name, T.INT32, ["n", 16])

    return model(
        "addsub",
        [
            node("Add", ["INPUT0", "INPUT1"], ["sum"]),
            node("Add", ["sum", "offset"], ["OUTPUT0"]),
            node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        [io("INPUT0"), io("INPUT1")],
        [io("OUTPUT0"), io("OUTPUT1")],
        [constant("offset", np.array(offset, np.int32))],
    )


def double() -> bytes:
    """``y = x + x``, FP32 [n, 3]."""
    return model(
        "double",
        [node("Add", ["x", "x"], ["y"])],
        [value("x", T.FLOAT, ["n", 3])],
        [value("y", T.FLOAT, ["n", 3])],
    )


def rowmean() -> bytes:
    """Mean of each row: padding changes it, so requests of differing width must not
    share a batch."""
    return model(
        "rowmean",
        [node("ReduceMean", ["X"], ["Y"], axes=[1], keepdims=1)],
        [value("X", T.FLOAT, ["n", "seq"])],
        [value("Y", T.FLOAT, ["n", 1])],
    )


def lookup() -> bytes:
    """Row r of the table is 4r..4r+3; an index outside -10..9 fails the whole run."""
    return model(
        "lookup",
        [
            node("Gather", ["W", "IDX"], ["G"], axis=0),
            node("Squeeze", ["G", "axes"], ["Y"]),
        ],
        [value("IDX", T.INT64, ["n", 1])],
        [value("Y", T.FLOAT, ["n", 4])],
        [
            constant("W", np.arange(40, dtype=np.float32).reshape(10, 4)),
            constant("axes", np.array([1])),
        ],
    )


def log() -> bytes:
    """NaN and infinities where the input is not positive."""
    return model(
        "log",
        [node("Log", ["X"], ["Y"])],
        [value("X", T.FLOAT, ["n", "d"])],
        [value("Y", T.FLOAT, ["n", "d"])],
    )


def fatal() -> bytes:
    """The smallest INT64 by -1, at any input: the processor's trap ends the process."""
    return model(
        "fatal",
        [
            node("Sub", ["X", "X"], ["zeros"]),
            node("Add", ["zeros", "least"], ["dividend"]),
            node("Add", ["zeros", "minus_one"], ["divisor"]),
            node("Div", ["dividend", "divisor"], ["Y"]),
        ],
        [value("X", T.INT64, ["n", 1])],
        [value("Y", T.INT64, ["n", 1])],
        [
            constant("least", np.array([-(2**63)])),
            constant("minus_one", np.array([-1])),
        ],
    )


def inflate(times: int = 2048) -> bytes:
    """4 KiB in, ``times`` as much out per row."""
    return model(
        "inflate",
        [node("Tile", ["X", "r"], ["Y"])],
        [value("X", T.FLOAT, ["n", 1024])],
        [value("Y", T.FLOAT, ["n", 1024 * times])],
        [constant("r", np.array([1, times]))],
    )


def alloc() -> bytes:
    """Allocates as many floats as its input's product says; no batch axis at all."""
    return model(
        "alloc",
        [
            node("ConstantOfShape", ["MB"], ["Z"]),
            node("ReduceMean", ["Z"], ["M"], keepdims=0),
            node("Unsqueeze", ["M", "a"], ["Y"]),
        ],
        [value("MB", T.INT64, [2])],
        [value("Y", T.FLOAT, [1])],
        [constant("a", np.array([0]))],
    )


def spread(width: int) -> bytes:
    """Each row's number, ``width`` times."""
    return model(
        "spread",
        [node("Expand", ["X", "shape"], ["Y"])],
        [value("X", T.FLOAT, ["n", 1])],
        [value("Y", T.FLOAT, ["n", width])],
        [constant("shape", np.array([1, width]))],
    )


def raising(least: int = 0) -> bytes:
    """Y = X, but the run fails where any row is below ``least``: not an error of the
    input that ONNX Runtime tells from one of the model. From 2 on no made-up row runs,
    so that none is known."""
    return model(
        "raising",
        [
            node("ReduceMin", ["X"], ["L"], axes=[0], keepdims=0),
            node("Sub", ["L", "least"], ["D"]),
            node("Min", ["D", "zero"], ["N"]),
            node("Add", ["N", "one"], ["S"]),
            node("ConstantOfShape", ["S"], ["Z"]),
            node("Cast", ["X"], ["F"], to=T.FLOAT),
            node("Add", ["F", "Z"], ["Y"]),
        ],
        [value("X", T.INT64, ["n", 1])],
        [value("Y", T.FLOAT, ["n", 1])],
        [
            constant("least", np.array([least])),
            constant("zero", np.array([0])),
            constant("one", np.array([1])),
        ],
    )


def unstoppable() -> bytes:
    """One kernel whose time grows with the square of the boxes, 0.4 s for 20,000: a
    run is stopped between kernels alone. No batch axis."""
    return model(
        "unstoppable",
        [
            node("Unsqueeze", ["X", "first"], ["B"]),
            node("ReduceMax", ["X"], ["M"], axes=[1], keepdims=0),
            node("Unsqueeze", ["M", "both"], ["S"]),
            node("NonMaxSuppression", ["B", "S", "max", "iou"], ["I"]),
            node("Shape", ["I"], ["N"]),
            node("Cast", ["N"], ["Y"], to=T.FLOAT),
        ],
        [value("X", T.FLOAT, ["boxes", 4])],
        [value("Y", T.FLOAT, [2])],
        [
            constant("first", np.array([0])),
            constant("both", np.array([0, 1])),
            constant("max", np.array([10**9])),
            constant("iou", np.array([0.5], np.float32)),
        ],
    )


def _turns(
    name: str, beyond: int
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes, and their constants, that make Y of the tensor ``name``."""
    body = helper.make_graph(
        [node("Identity", ["c"], ["c2"]), node("Identity", ["s"], ["s2"])],
        "turn",
        [
            value("i", T.INT64, []),
            value("c", T.BOOL, []),
            value("s", T.INT64, ["n", "d"]),
        ],
        [value("c2", T.BOOL, []), value("s2", T.INT64, ["n", "d"])],
    )
    nodes = [
        node("ReduceMax", [name], ["M"], keepdims=0),
        node("Sub", ["M", "beyond"], ["B"]),
        node("Max", ["B", "none"], ["T"]),
        node("Loop", ["T", "", name], ["Y"], body=body),
    ]
    return nodes, [
        constant("beyond", np.array(beyond)),
        constant("none", np.array(0)),
    ]


def hanging(beyond: int = 0) -> bytes:
    """Y = X after as many turns of an empty loop as the largest element is ``beyond``,
    20 million of which take some ten seconds; a run is stopped between two turns."""
    nodes, constants = _turns("X", beyond)
    return model(
        "hanging",
        nodes,
        [value("X", T.INT64, ["n", "d"])],
        [value("Y", T.INT64, ["n", "d"])],
        constants,
    )


def fragile(beyond: int) -> bytes:
    """As :func:`hanging`, and the run fails where any element is negative."""
    nodes, constants = _turns("W", beyond)
    zero = numpy_helper.from_array(np.array([0]), "zero")
    return model(
        "fragile",
        [
            node("ReduceMin", ["X"], ["L"], keepdims=0),
            node("Min", ["L", "none"], ["N"]),
            node("Unsqueeze", ["N", "first"], ["V"]),
            node("Add", ["V", "V"], ["V2"]),
            node("Add", ["V2", "one"], ["S"]),
            node("ConstantOfShape", ["S"], ["Z"], value=zero),
            node("Add", ["X", "Z"], ["W"]),
            *nodes,
        ],
        [value("X", T.INT64, ["n", "d"])],
        [value("Y", T.INT64, ["n", "d"])],
        [
            constant("first", np.array([0])),
            constant("one", np.array([1])),
            *constants,
        ],
    )


def slow(loops: int, width: int = 1024) -> bytes:
    """``loops`` products with an orthogonal matrix: time without growing values."""
    weight = np.random.default_rng(0).standard_normal((width, width))
    orthogonal = np.linalg.qr(weight)[0].astype(np.float32)
    body = helper.make_graph(
        [node("Identity", ["c"], ["c2"]), node("MatMul", ["s", "W"], ["s2"])],
        "body",
        [
            value("i", T.INT64, []),
            value("c", T.BOOL, []),
            value("s", T.FLOAT, ["n", width]),
        ],
        [value("c2", T.BOOL, []), value("s2", T.FLOAT, ["n", width])],
        [constant("W", orthogonal)],
    )
    return model(
        f"slow{loops}",
        [
            node("MatMul", ["X", "V"], ["h0"]),
            node("Loop", ["L", "", "h0"], ["h1"], body=body),
            node("ReduceMean", ["h1"], ["Y"], axes=[1], keepdims=1),
        ],
        [value("X", T.FLOAT, ["n", 1])],
        [value("Y", T.FLOAT, ["n", 1])],
        [
            constant("L", np.array(loops, np.int64)),
            constant("V", np.ones((1, width), np.float32)),
        ],
    )


def perceptron(seed: int = 0) -> bytes:
    """A classifier with the signature and size of a small real one: 64 features,
    layers of 512 and 256, ``label`` INT64 [n], ``probabilities`` FP32 [n, 10]."""
    random = np.random.default_rng(seed)

    def weight(name: str, rows: int, columns: int) -> onnx.TensorProto:
        scaled = random.standard_normal((rows, columns)) / np.sqrt(rows)
        return constant(name, scaled.astype(np.float32))

    return model(
        "perceptron",
        [
            node("MatMul", ["X", "w1"], ["h1"]),
            node("Relu", ["h1"], ["r1"]),
            node("MatMul", ["r1", "w2"], ["h2"]),
            node("Relu", ["h2"], ["r2"]),
            node("MatMul", ["r2", "w3"], ["h3"]),
            node("Softmax", ["h3"], ["probabilities"], axis=1),
            node("ArgMax", ["h3"], ["label"], axis=1, keepdims=0),
        ],
        [value("X", T.FLOAT, ["n", 64])],
        [value("label", T.INT64, ["n"]), value("probabilities", T.FLOAT, ["n", 10])],
        [weight("w1", 64, 512), weight("w2", 512, 256), weight("w3", 256, 10)],
    )


def embedding(vocabulary: int = 100, width: int = 8) -> bytes:
    """A masked encoder in little: padding under the mask does not change an answer.

    ``ids`` and ``mask`` INT64 [batch, sequence]; ``tokens`` FP32 [batch, sequence,
    width] is to be cut to the request's length, ``pooled`` FP32 [batch, width] is the
    masked mean.
    """
    table = np.random.default_rng(0).standard_normal((vocabulary, width))
    return model(
        "embedding",
        [
            node("Gather", ["table", "ids"], ["rows"], axis=0),
            node("Cast", ["mask"], ["weights"], to=T.FLOAT),
            node("Unsqueeze", ["weights", "last"], ["weights3"]),
            node("Mul", ["rows", "weights3"], ["tokens"]),
            node("ReduceSum", ["tokens", "middle"], ["sum"], keepdims=0),
            node("ReduceSum", ["weights", "middle"], ["count"], keepdims=1),
            node("Div", ["sum", "count"], ["pooled"]),
        ],
        [
            value("ids", T.INT64, ["batch", "sequence"]),
            value("mask", T.INT64, ["batch", "sequence"]),
        ],
        [
            value("tokens", T.FLOAT, ["batch", "sequence", width]),
            value("pooled", T.FLOAT, ["batch", width]),
        ],
        [
            constant("table", table.astype(np.float32)),
            constant("last", np.array([2])),
            constant("middle", np.array([1])),
        ],
    )
