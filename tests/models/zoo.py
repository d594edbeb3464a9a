"""Awkward ONNX models: what real files get wrong, one trait each.

Those named ``refused_*`` cannot be loaded at all; the others load and misbehave.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

from tests.models.graphs import addsub, constant, identity, model, node, value

_WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)


def _rows(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return value(name, T.FLOAT, list(shape))


def fixed_batch1() -> bytes:
    """Dimension 0 is 1: no batch of two can run."""
    return model(
        "fixed_batch1",
        [node("MatMul", ["x", "w"], ["y"])],
        [_rows("x", 1, 8)],
        [_rows("y", 1, 8)],
        [constant("w", _WEIGHT)],
    )


def hidden_limit(rows_max: int = 4) -> bytes:
    """Declares any number of rows and fails above ``rows_max``."""
    return model(
        "hidden_limit",
        [
            node("Shape", ["x"], ["shape"]),
            node("Slice", ["shape", "from", "to"], ["n"]),
            node("Slice", ["table", "from", "n"], ["part"]),
            node("Add", ["x", "part"], ["y"]),
        ],
        [_rows("x", "N", 8)],
        [_rows("y", "N", 8)],
        [
            constant("table", np.ones((rows_max, 8), np.float32)),
            constant("from", np.array([0])),
            constant("to", np.array([1])),
        ],
    )


def batch_coupled() -> bytes:
    """Subtracts the batch's mean: an answer depends on the neighbours."""
    return model(
        "batch_coupled",
        [
            node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
            node("Sub", ["x", "m"], ["y"]),
        ],
        [_rows("x", "N", 8)],
        [_rows("y", "N", 8)],
    )


def divided_by_rows() -> bytes:
    """An answer depends on how many neighbours there are, not on who they are."""
    return model(
        "divided_by_rows",
        [
            node("Shape", ["x"], ["shape"]),
            node("Slice", ["shape", "from", "to"], ["n"]),
            node("Cast", ["n"], ["rows"], to=T.FLOAT),
            node("Div", ["x", "rows"], ["y"]),
        ],
        [_rows("x", "N", 8)],
        [_rows("y", "N", 8)],
        [constant("from", np.array([0])), constant("to", np.array([1]))],
    )


def dynamic_quantized() -> bytes:
    """Quantises the activations of the whole batch by one scale, as tools for
    dynamic quantisation write it."""
    weights = (_WEIGHT * 40).astype(np.int8)
    return model(
        "dynamic_quantized",
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
            node("MatMulInteger", ["q", "w", "zero"], ["i"]),
            node("Cast", ["i"], ["f"], to=T.FLOAT),
            node("Mul", ["f", "scale"], ["y"]),
        ],
        [_rows("x", "unk__0", 8)],
        [_rows("y", "unk__1", 8)],
        [constant("w", weights)],
    )


def ragged_out() -> bytes:
    """Dimension 0 of the output counts hits, not rows."""
    return model(
        "ragged_out",
        [
            node("Greater", ["x", "th"], ["g"]),
            node("NonZero", ["g"], ["nz"]),
            node("Transpose", ["nz"], ["y"]),
        ],
        [_rows("x", "N", 8)],
        [value("y", T.INT64, ["hits", 2])],
        [constant("th", np.float32(0.5))],
    )


def axis1_batch() -> bytes:
    """Time first: the batch is axis 1 of the input, axis 0 of the output."""
    return model(
        "axis1_batch",
        [node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=0)],
        [_rows("x", "T", "N", 8)],
        [_rows("y", "N", 8)],
    )


def scalar_param() -> bytes:
    """``k`` has rank 0 and is shared by the batch."""
    return model(
        "scalar_param",
        [node("Mul", ["x", "k"], ["y"])],
        [_rows("x", "N", 8), _rows("k")],
        [_rows("y", "N", 8)],
    )


def mixed_datatypes() -> bytes:
    """UINT8 [N, 4, 4] and BOOL [N] in, FP64 [N] and BOOL [N] out."""
    return model(
        "mixed_datatypes",
        [
            node("Cast", ["img"], ["f"], to=T.DOUBLE),
            node("ReduceMean", ["f"], ["mean"], axes=[1, 2], keepdims=0),
            node("Not", ["flag"], ["flag_out"]),
        ],
        [value("img", T.UINT8, ["N", 4, 4]), value("flag", T.BOOL, ["N"])],
        [value("mean", T.DOUBLE, ["N"]), value("flag_out", T.BOOL, ["N"])],
    )


def random_out() -> bytes:
    """Another answer at every run."""
    return model(
        "random_out",
        [node("RandomUniformLike", ["x"], ["y"])],
        [_rows("x", "N", 8)],
        [_rows("y", "N", 8)],
    )


def poison_gather() -> bytes:
    """One index outside 0..7 fails everybody's run."""
    return model(
        "poison_gather",
        [node("Gather", ["table", "ids"], ["y"], axis=0)],
        [value("ids", T.INT64, ["N"])],
        [_rows("y", "N", 8)],
        [constant("table", _WEIGHT)],
    )


def lengths_add_up() -> bytes:
    """Three variable dimensions of which one is the sum of the others, as in a
    decoder with a cache: equal sizes for all of them cannot run."""
    return model(
        "lengths_add_up",
        [
            node("Concat", ["past", "now"], ["all"], axis=1),
            node("Add", ["all", "mask"], ["y"]),
        ],
        [
            _rows("past", "N", "past"),
            _rows("now", "N", "seq"),
            _rows("mask", "N", "total"),
        ],
        [_rows("y", "N", "total")],
    )


def refused_bad_opset() -> bytes:
    return _patched(lambda m: setattr(m.opset_import[0], "version", 999))


def refused_bad_ir() -> bytes:
    return _patched(lambda m: setattr(m, "ir_version", 99))


def refused_unknown_op() -> bytes:
    proto = onnx.load_from_string(addsub())
    proto.opset_import.append(helper.make_opsetid("acme.custom", 1))
    proto.graph.node[0].op_type = "FancyOp"
    proto.graph.node[0].domain = "acme.custom"
    return proto.SerializeToString()


def refused_corrupt() -> bytes:
    whole = identity("FP32")
    return whole[: len(whole) // 2]


def refused_empty() -> bytes:
    return b""


def refused_map_output() -> bytes:
    """A sequence of maps, as converters of classifiers write it by default."""
    proto = onnx.load_from_string(
        model(
            "map_output",
            [node("Softmax", ["X"], ["p"])],
            [_rows("X", "n", 3)],
            [_rows("p", "n", 3)],
        )
    )
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    proto.graph.node.append(
        node(
            "ZipMap",
            ["p"],
            ["z"],
            domain="ai.onnx.ml",
            classlabels_int64s=[0, 1, 2],
        )
    )
    del proto.graph.output[:]
    proto.graph.output.append(
        helper.make_value_info(
            "z",
            helper.make_sequence_type_proto(
                helper.make_map_type_proto(
                    T.INT64, helper.make_tensor_type_proto(T.FLOAT, [])
                )
            ),
        )
    )
    return proto.SerializeToString()


def external_data(location: str) -> bytes:
    """``y = x + w``, the weight kept in a file beside the model, or wherever
    ``location`` says."""
    proto = onnx.load_from_string(
        model(
            "external_data",
            [node("Add", ["x", "w"], ["y"])],
            [_rows("x", "N", 8)],
            [_rows("y", "N", 8)],
            [constant("w", np.ones(8, np.float32))],
        )
    )
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = T.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", "32")):
        entry = weight.external_data.add()
        entry.key, entry.value = key, text
    return proto.SerializeToString()


def external_data_in_subgraph(location: str) -> bytes:
    """The same weight inside the body of an ``If``, and in a node's attribute."""
    outer = onnx.load_from_string(external_data(location))
    weight = outer.graph.initializer.pop()
    branch = helper.make_graph(
        [node("Add", ["x", "w"], ["b"])], "branch", [], [_rows("b", "N", 8)], [weight]
    )
    del outer.graph.node[:]
    outer.graph.initializer.append(constant("yes", np.ones((), np.bool_)))
    outer.graph.node.append(
        node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    )
    return outer.SerializeToString()


def _patched(change: object) -> bytes:
    proto = onnx.load_from_string(addsub())
    change(proto)
    return proto.SerializeToString()
