"""One suite for what runs batches: ONNX Runtime and the simulated accelerator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from headrace.domain import VARIABLE, Datatype, Manifest, TensorSpec
from headrace.errors import ModelRefused, SetupError
from headrace.runtime import (
    NUMPY_TYPES,
    DeviceSettings,
    FailureKind,
    OnnxSession,
    Provider,
    RunFailed,
    Session,
    SimulatedSession,
    open_device,
)
from tests.models import graphs, zoo

CPU = open_device(DeviceSettings(provider="cpu"))


def onnx(tmp_path: Path, model: bytes) -> OnnxSession:
    path = tmp_path / "model.onnx"
    path.write_bytes(model)
    return OnnxSession(path, CPU)


def simulated(alpha_ms: float = 1, datatype: str = "FP32") -> SimulatedSession:
    return SimulatedSession(
        Manifest.model_validate(
            {
                "backend": "simulated",
                "alpha_ms": alpha_ms,
                "beta_ms": 0.5,
                "memory_rows": 8,
                "inputs": [{"name": "X", "datatype": datatype, "shape": [-1, -1]}],
            }
        )
    )


@pytest.fixture(params=["onnx", "simulated"])
def identity(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    if request.param == "simulated":
        return simulated()
    return onnx(tmp_path, graphs.identity("FP32"))


@pytest.fixture(params=["onnx", "simulated"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    if request.param == "simulated":
        return simulated(alpha_ms=60_000)
    return onnx(tmp_path, graphs.slow(100_000))


def test_outputs_come_in_the_order_of_the_signature(identity: Session) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)

    (output,) = identity.run({identity.signature.inputs[0].name: rows})

    assert output.dtype == np.float32
    assert output.tolist() == rows.tolist()


def test_a_variable_dimension_reads_as_such(identity: Session) -> None:
    assert identity.signature.inputs == (
        TensorSpec("X", Datatype.FP32, (VARIABLE, VARIABLE)),
    )


def test_a_run_is_stopped_from_another_thread_and_the_next_one_runs(
    endless: Session,
) -> None:
    began = time.monotonic()
    inputs = {"X": np.ones((1, 1), np.float32)}
    ended = threading.Event()

    def stop() -> None:
        # More than once, since nobody tells that the run has begun.
        while not ended.wait(0.1):
            endless.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()

    with pytest.raises(RunFailed) as failed:
        endless.run(inputs)

    ended.set()
    stopper.join()
    assert failed.value.kind is FailureKind.STOPPED
    assert time.monotonic() - began < 40


def test_a_simulated_run_takes_its_time() -> None:
    session = simulated(alpha_ms=20)
    began = time.monotonic()

    session.run({"X": np.ones((4, 1), np.float32)})

    assert session.run_us(4) == 22_000
    assert time.monotonic() - began >= 0.022


def test_a_simulated_accelerator_has_a_limited_memory() -> None:
    session = simulated()

    with pytest.raises(RunFailed, match="9 rows, but 8 fit") as failed:
        session.run({"X": np.ones((9, 1), np.float32)})

    assert failed.value.kind is FailureKind.MEMORY


def any_value(datatype: Datatype) -> np.ndarray:
    kind = NUMPY_TYPES[datatype]
    if datatype is Datatype.BYTES:
        return np.array([["", "ä\U0001f600"], ["b'x'", "1"]], np.object_)
    if datatype is Datatype.BOOL:
        return np.array([[True, False], [False, True]])
    raw = bytes(range(1, 4 * kind.itemsize + 1))
    return np.frombuffer(raw, kind).reshape(2, 2)


@pytest.mark.parametrize("datatype", list(Datatype))
@pytest.mark.parametrize("tenant", ["onnx", "simulated"])
def test_every_datatype_passes_bit_by_bit(
    tmp_path: Path, datatype: Datatype, tenant: str
) -> None:
    session: Session = (
        onnx(tmp_path, graphs.identity(datatype))
        if tenant == "onnx"
        else simulated(datatype=datatype)
    )
    sent = any_value(datatype)

    (got,) = session.run({"X": sent})

    assert session.signature.inputs[0].datatype is datatype
    assert got.dtype.kind == sent.dtype.kind
    if datatype is Datatype.BYTES:
        assert got.tolist() == sent.tolist()
    else:
        assert got.tobytes() == sent.tobytes()


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_every_bit_pattern_of_a_float_passes(tmp_path: Path, datatype: str) -> None:
    kind = NUMPY_TYPES[Datatype(datatype)]
    random = np.random.default_rng(0)
    sent = np.frombuffer(random.bytes(4096 * kind.itemsize), kind).reshape(64, 64)
    session = onnx(tmp_path, graphs.identity(datatype))

    (got,) = session.run({"X": sent})

    assert got.tobytes() == sent.tobytes()


def test_rank_0_and_mixed_datatypes(tmp_path: Path) -> None:
    scaled = onnx(tmp_path, zoo.scalar_param()).run(
        {"x": np.ones((2, 8), np.float32), "k": np.array(3, np.float32)}
    )
    mixed = onnx(tmp_path, zoo.mixed_datatypes()).run(
        {
            "img": np.full((2, 4, 4), 200, np.uint8),
            "flag": np.array([True, False]),
        }
    )

    assert scaled[0].tolist() == [[3.0] * 8] * 2
    assert [each.tolist() for each in mixed] == [[200.0, 200.0], [False, True]]
    assert [each.dtype for each in mixed] == [np.float64, np.bool_]


def test_a_rank_0_output_is_an_array(tmp_path: Path) -> None:
    model = graphs.model(
        "total",
        [graphs.node("ReduceSum", ["X"], ["Y"], keepdims=0)],
        [graphs.value("X", graphs.T.FLOAT, ["n"])],
        [graphs.value("Y", graphs.T.FLOAT, [])],
    )

    (total,) = onnx(tmp_path, model).run({"X": np.ones(3, np.float32)})

    assert (total.shape, float(total)) == ((), 3.0)


@pytest.mark.parametrize(
    ("model", "inputs", "kind", "text"),
    [
        (
            graphs.lookup(),
            {"IDX": np.array([[1], [1_000_000]])},
            FailureKind.INPUT,
            "idx=1000000 must be within the inclusive range [-10,9]",
        ),
        (graphs.lookup(), {}, FailureKind.INPUT, "Required inputs (['IDX'])"),
        (
            graphs.lookup(),
            {"IDX": np.ones((1, 1), np.float32)},
            FailureKind.INPUT,
            "Unexpected input data type",
        ),
        (
            graphs.alloc(),
            {"MB": np.array([2**40, 10])},
            FailureKind.MEMORY,
            "Failed to allocate memory",
        ),
        (
            zoo.hidden_limit(4),
            {"x": np.ones((5, 8), np.float32)},
            FailureKind.MODEL,
            "4 by 5",
        ),
    ],
)
def test_a_failed_run_says_whose_fault_it_is_and_the_next_one_runs(
    tmp_path: Path, model: bytes, inputs: dict, kind: FailureKind, text: str
) -> None:
    session = onnx(tmp_path, model)

    with pytest.raises(RunFailed) as failed:
        session.run(inputs)

    assert failed.value.kind is kind
    assert text in str(failed.value)
    assert "/" not in str(failed.value)
    good = {
        spec.name: np.ones(
            [abs(size) for size in spec.shape], NUMPY_TYPES[spec.datatype]
        )
        for spec in session.signature.inputs
    }
    assert len(session.run(good)) == 1


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (zoo.refused_bad_opset, "Opset 999 is under development"),
        (zoo.refused_bad_ir, "Unsupported model IR version: 99"),
        (zoo.refused_unknown_op, "FancyOp(-1) is not a registered function/op"),
        (zoo.refused_corrupt, "rotobuf parsing failed"),
        (zoo.refused_empty, "No graph was found"),
        (zoo.refused_map_output, "zipmap=False"),
    ],
)
def test_a_file_that_cannot_be_served_is_refused_without_its_path(
    tmp_path: Path, build: Callable[[], bytes], text: str
) -> None:
    with pytest.raises(ModelRefused) as refused:
        onnx(tmp_path, build())

    assert text in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
    assert "onnxruntime_src" not in str(refused.value)


def test_a_closed_session_frees_its_model_and_cannot_run(tmp_path: Path) -> None:
    session = onnx(tmp_path, graphs.rowmean())
    session.close()

    with pytest.raises(AttributeError):
        session.run({"X": np.ones((1, 1), np.float32)})


def test_auto_takes_what_works_and_cuda_fails_loudly_where_it_does_not() -> None:
    taken = open_device(DeviceSettings(provider="auto")).provider

    if taken is Provider.CUDA:
        assert open_device(DeviceSettings(provider="cuda")).provider is Provider.CUDA
    else:
        with pytest.raises(SetupError, match="takes CPUExecutionProvider: install"):
            open_device(DeviceSettings(provider="cuda"))


def test_weights_in_a_file_beside_the_model_are_used(tmp_path: Path) -> None:
    weights = np.arange(8, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())

    (got,) = onnx(tmp_path, zoo.external_data("weights.bin")).run(
        {"x": np.ones((1, 8), np.float32)}
    )

    assert got.tolist() == [(weights + 1).tolist()]


def test_a_shrunk_arena_gives_memory_back_and_a_rebuilt_session_runs(
    tmp_path: Path,
) -> None:
    session = onnx(tmp_path, graphs.alloc())
    session.run({"MB": np.array([2, 3])})  # the arena keeps its first region
    session.run({"MB": np.array([60_000, 1_000])})  # 240 MB
    before = resident_mb()

    session.shrink()
    session.run({"MB": np.array([2, 3])})

    assert resident_mb() < before - 200
    session.rebuild()
    (output,) = session.run({"MB": np.array([2, 3])})
    assert output.tolist() == [0.0]


def resident_mb() -> float:
    return psutil.Process().memory_info().rss / 1e6


def test_a_session_is_not_rebuilt_from_other_files(tmp_path: Path) -> None:
    session = onnx(tmp_path, graphs.identity("FP32"))
    (tmp_path / "model.onnx").write_bytes(graphs.log())

    with pytest.raises(ModelRefused, match="its files have changed"):
        session.rebuild()


def test_the_simulated_memory_may_shrink_after_the_load() -> None:
    manifest = Manifest.model_validate(
        {
            "backend": "simulated",
            "alpha_ms": 1,
            "beta_ms": 0,
            "memory_left_rows": 2,
            "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 1]}],
        }
    )
    session = SimulatedSession(manifest)

    session.run({"X": np.zeros((2, 1), np.float32)})
    with pytest.raises(RunFailed, match="3 rows, but 2 fit"):
        session.run({"X": np.zeros((3, 1), np.float32)})
