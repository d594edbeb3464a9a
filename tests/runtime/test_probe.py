from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from headrace.domain import VARIABLE, Datatype, Manifest, Signature, TensorSpec
from headrace.errors import ModelRefused
from headrace.runtime import Array, DeviceSettings, Probed, load, open_device
from headrace.runtime.probe import probe
from tests.models import graphs, zoo

CPU = open_device(DeviceSettings(provider="cpu"))


def probed(tmp_path: Path, model: bytes, **manifest: object) -> Probed:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    loaded = load(path, Manifest.model_validate(manifest), CPU)
    loaded.session.close()
    return loaded.probed


def refusal(tmp_path: Path, model: bytes, **manifest: object) -> str:
    with pytest.raises(ModelRefused) as refused:
        probed(tmp_path, model, **manifest)
    return str(refused.value)


WELL_BEHAVED = {
    **{datatype: graphs.identity(datatype) for datatype in graphs.DATATYPES},
    "addsub": graphs.addsub(),
    "rowmean": graphs.rowmean(),
    "lookup": graphs.lookup(),
    "log": graphs.log(),
    "perceptron": graphs.perceptron(),
    "embedding": graphs.embedding(),
    "mixed_datatypes": zoo.mixed_datatypes(),
    "poison_gather": zoo.poison_gather(),
    "lengths_add_up": zoo.lengths_add_up(),
}


@pytest.mark.parametrize("model", WELL_BEHAVED.values(), ids=WELL_BEHAVED)
def test_a_well_behaved_model_batches_without_a_word(
    tmp_path: Path, model: bytes
) -> None:
    got = probed(tmp_path, model)

    assert got.max_batch == 32
    assert set(got.layout.batch_axes.values()) == {0}
    assert sorted(got.run_us) == [1, 2, 3, 32]
    assert min(got.run_us.values()) > 0
    assert got.warnings == ()


def test_run_times_are_measured(tmp_path: Path) -> None:
    got = probed(tmp_path, graphs.slow(200, width=256), max_batch=4)

    assert sorted(got.run_us) == [1, 2, 3, 4]
    assert min(got.run_us.values()) > 500


def test_a_hidden_limit_is_found(tmp_path: Path) -> None:
    got = probed(tmp_path, zoo.hidden_limit(4))

    assert got.max_batch == 4
    assert sorted(got.run_us) == [1, 2, 3, 4]
    assert len(got.warnings) == 1
    assert got.warnings[0].startswith("runs at most 4 rows instead of 32: Add node: ")


@pytest.mark.parametrize("rows", [2, 3, 5, 31, 32])
def test_a_hidden_limit_is_found_wherever_it_is(tmp_path: Path, rows: int) -> None:
    assert probed(tmp_path, zoo.hidden_limit(rows)).max_batch == rows


@pytest.mark.parametrize(
    "build", [zoo.batch_coupled, zoo.divided_by_rows, zoo.dynamic_quantized]
)
def test_an_answer_that_depends_on_neighbours_is_told(
    tmp_path: Path, build: object
) -> None:
    got = probed(tmp_path, build())

    assert got.max_batch == 32
    assert len(got.warnings) == 1
    assert got.warnings[0].startswith("answers alone and in a batch differ, by up to ")


def test_an_answer_that_is_never_the_same_is_told(tmp_path: Path) -> None:
    got = probed(tmp_path, zoo.random_out())

    assert got.warnings == ("answers differ from run to run",)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (zoo.fixed_batch1, "dimension 0 of 'x' is fixed at 1"),
        (zoo.axis1_batch, "dimension 0 is called 'T' in 'x' and 'N' in 'y'"),
        (zoo.ragged_out, "dimension 0 is called 'N' in 'x' and 'hits' in 'y'"),
        (graphs.alloc, "dimension 0 of 'MB' is fixed at 2"),
    ],
)
def test_a_model_without_a_known_batch_axis_is_refused_with_the_keys_to_add(
    tmp_path: Path, build: object, reason: str
) -> None:
    text = refusal(tmp_path, build())

    assert reason in text
    assert "batch_axis = {" in text
    assert "max_batch = 1" in text


@pytest.mark.parametrize(
    "build", [zoo.fixed_batch1, zoo.axis1_batch, zoo.ragged_out, graphs.alloc]
)
def test_max_batch_1_makes_it_servable(tmp_path: Path, build: object) -> None:
    got = probed(tmp_path, build(), max_batch=1)

    assert (got.max_batch, got.layout.batch_axes) == (1, {})
    assert sorted(got.run_us) == [1]
    assert got.warnings == ()


def test_a_declared_axis_makes_a_time_major_model_batch(tmp_path: Path) -> None:
    got = probed(tmp_path, zoo.axis1_batch(), batch_axis={"x": 1})

    assert got.layout.batch_axes == {"x": 1, "y": 0}
    assert got.max_batch == 32
    assert got.warnings == ()


def test_a_wrong_axis_shows_in_the_probe(tmp_path: Path) -> None:
    text = refusal(tmp_path, zoo.ragged_out(), batch_axis={"y": 0})

    assert "output 'y' has shape" in text
    assert "max_batch = 1" in text


def test_a_rank_0_input_is_shared(tmp_path: Path) -> None:
    got = probed(tmp_path, zoo.scalar_param())

    assert got.layout.batch_axes == {"x": 0, "k": -1, "y": 0}
    assert got.max_batch == 32


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"z": 0}, "batch_axis names 'z', which is no tensor of the model; there are "),
        ({"x": 3}, "batch_axis.x = 3, but 'x' has the axes 0 to 2"),
        ({"x": 2}, "batch_axis.x = 2, but that dimension is fixed at 8"),
        ({"x": -1}, "no input has one"),
        ({"x": 1, "y": -1}, "output 'y' has none, so it cannot be shared out"),
    ],
)
def test_a_declared_axis_must_be_one(
    tmp_path: Path, declared: dict[str, int], sentence: str
) -> None:
    assert sentence in refusal(tmp_path, zoo.axis1_batch(), batch_axis=declared)


def test_a_model_that_no_made_up_input_can_run_is_served_unprobed(
    tmp_path: Path,
) -> None:
    model = graphs.model(
        "reshape",
        [graphs.node("Reshape", ["X", "shape"], ["Y"])],
        [graphs.value("X", graphs.T.FLOAT, ["n", "d"])],
        [graphs.value("Y", graphs.T.FLOAT, ["n", 7])],
        [graphs.constant("shape", [-1, 7])],
    )

    got = probed(tmp_path, model)

    assert (got.max_batch, got.run_us) == (32, {})
    assert got.warnings[0].startswith("not probed, for made-up inputs cannot run: ")


def test_a_row_of_absurd_size_is_never_made_up(tmp_path: Path) -> None:
    model = graphs.model(
        "wide",
        [graphs.node("Identity", ["X"], ["Y"])],
        [graphs.value("X", onnx.TensorProto.FLOAT, ["n", 1 << 40])],
        [graphs.value("Y", onnx.TensorProto.FLOAT, ["n", 1 << 40])],
    )

    (warning,) = probed(tmp_path, model).warnings
    assert warning == (
        "not probed, for made-up inputs cannot run: a row of input 'X' has more than "
        "67108864 elements"
    )


def test_padding_that_keeps_answers_is_silent(tmp_path: Path) -> None:
    got = probed(
        tmp_path, graphs.embedding(), padding={"axis": "sequence", "edges": [4, 8]}
    )

    padding = got.layout.padding
    assert padding is not None
    assert padding.input_axes == {"ids": 1, "mask": 1}
    assert padding.output_axes == {"tokens": 1}
    assert padding.values == {"ids": 0.0, "mask": 0.0}
    assert (got.max_batch, got.warnings) == (32, ())


def test_padding_that_changes_answers_is_told(tmp_path: Path) -> None:
    got = probed(tmp_path, graphs.rowmean(), padding={"axis": "seq", "edges": [4]})

    assert len(got.warnings) == 1
    assert got.warnings[0].startswith("padding changes answers, by up to ")


def test_a_filler_that_the_datatype_cannot_hold_is_refused(tmp_path: Path) -> None:
    padding = {"axis": "seq", "edges": [4], "values": {"X": 1e300}}

    text = refusal(tmp_path, graphs.rowmean(), padding=padding)

    assert "padding.values.X = 1e+300 does not fit FP32" in text


@pytest.mark.parametrize(
    ("padding", "sentence"),
    [
        ({"axis": "seq", "edges": [4]}, "padding.axis 'seq' is no dimension of an"),
        (
            {"axis": "sequence", "edges": [4], "values": {"pooled": 1}},
            "padding.values names 'pooled'",
        ),
        (
            {"axis": "sequence", "edges": [4], "values": {"ids": 0.5}},
            "padding.values.ids = 0.5 does not fit INT64",
        ),
        ({"axis": "batch", "edges": [4]}, "no batch axis beside it"),
    ],
)
def test_wrong_padding_is_refused(
    tmp_path: Path, padding: dict[str, object], sentence: str
) -> None:
    assert sentence in refusal(tmp_path, graphs.embedding(), padding=padding)


class _Slow:
    """The session of an encoder whose element of an array takes ``us``, in a time of
    its own."""

    def __init__(self, us: int) -> None:
        self.us = us
        self.now_us = 0
        self.runs: list[tuple[int, ...]] = []
        ids = TensorSpec("ids", Datatype.INT64, (VARIABLE, VARIABLE))
        self.signature = Signature((ids,), (ids,))
        self.dimensions = {"ids": ("batch", "sequence")}
        self.platform = self.provider = "slow"

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        self.runs.append(inputs["ids"].shape)
        self.now_us += self.us * inputs["ids"].size
        return [inputs["ids"]]

    def stop(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("warm_up", [0, 1, 100])
@pytest.mark.parametrize("us", [1, 10, 100, 1000])
def test_the_probe_of_a_slow_padded_model_ends_soon(
    monkeypatch: pytest.MonkeyPatch, us: int, warm_up: int
) -> None:
    session = _Slow(us)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: session.now_us * 1000)
    manifest = Manifest.model_validate(
        {
            "max_batch": 16,
            "warm_up": warm_up,
            "padding": {"axis": "sequence", "edges": [16, 32, 64, 128, 256]},
        }
    )

    got = probe(session, manifest)

    (timed,) = {length for rows, length in session.runs if rows == 16} - {16} or {16}
    assert got.run_us == {rows: us * rows * timed for rows in (1, 2, 3, 16)}
    assert got.run_length == timed
    assert got.warnings == ()
    assert {length for _, length in session.runs} >= {256}
    full_us = us * 16 * 16
    assert session.now_us <= 2_500_000 + 8 * full_us


def test_the_probe_fills_in_a_rank_that_the_file_leaves_out(tmp_path: Path) -> None:
    proto = onnx.load_from_string(
        graphs.model(
            "reshape",
            [
                graphs.node("Shape", ["X"], ["s"]),
                graphs.node("NonZero", ["s"], ["places"]),
                graphs.node("Squeeze", ["places", "first"], ["i"]),
                graphs.node("Gather", ["s", "i"], ["t"]),
                graphs.node("Reshape", ["X", "t"], ["Y"]),
            ],
            [graphs.value("X", graphs.T.FLOAT, ["n", 3])],
            [graphs.value("Y", graphs.T.FLOAT, ["n", 3])],
            [graphs.constant("first", [0])],
        )
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = proto.SerializeToString()

    assert "output 'Y' has none" in refusal(tmp_path, model)
    got = probed(tmp_path, model, batch_axis={"Y": 0})

    assert got.layout.signature.outputs[0].shape == (VARIABLE, VARIABLE)


def test_a_simulated_accelerator_is_known_without_runs() -> None:
    manifest = Manifest.model_validate(
        {
            "backend": "simulated",
            "alpha_ms": 10_000,
            "beta_ms": 1,
            "memory_rows": 8,
            "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4]}],
        }
    )

    got = load(Path("unused"), manifest, CPU).probed

    assert got.max_batch == 8
    assert got.run_us == {1: 10_001_000, 2: 10_002_000, 3: 10_003_000, 8: 10_008_000}
    assert got.layout.batch_axes == {"X": 0}
    assert got.warnings == ("runs at most 8 rows instead of 32: out of memory",)
