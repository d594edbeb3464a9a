from __future__ import annotations

from pathlib import Path

import pytest

from headrace.domain import Manifest
from headrace.errors import ModelRefused
from headrace.repository import read_manifest
from tests.models.folders import put_simulated, put_version


def manifest(tmp_path: Path, toml: str) -> Manifest:
    return read_manifest(put_version(tmp_path, "m", "1", b"onnx", toml))


def test_a_folder_without_a_manifest_has_the_defaults(tmp_path: Path) -> None:
    read = manifest(tmp_path, "")

    assert read == Manifest()
    assert (read.max_batch, read.batch_axis, read.padding) == (32, {}, None)


def test_every_key_is_read(tmp_path: Path) -> None:
    read = manifest(
        tmp_path,
        """
        max_batch = 8
        batch_axis = { state = 1, k = -1 }
        warm_up = 3
        latency_objective_ms = 50
        [padding]
        axis = "sequence"
        values = { ids = 7 }
        edges = [16, 32]
        """,
    )

    assert read.max_batch == 8
    assert read.batch_axis == {"state": 1, "k": -1}
    assert read.warm_up == 3
    assert read.latency_objective_ms == 50
    assert read.padding is not None
    assert read.padding.edges == (16, 32)
    assert read.padding.values == {"ids": 7}


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("max_batches = 8", "max_batches: unknown key (known: alpha_ms,"),
        ("max_batch = 0", "max_batch: Input should be greater than or equal to 1"),
        ("max_batch = true", "max_batch: Input should be a valid integer"),
        ("max_batch = 8.5", "max_batch: Input should be a valid integer"),
        ("max_batch = ", "model.toml is not TOML: Invalid value"),
        ("batch_axis = { x = -2 }", "batch_axis.x: "),
        ("latency_objective_ms = 0", "latency_objective_ms: "),
        ("[padding]\naxis = 's'", "padding.edges: Field required"),
        ("[padding]\naxis = 's'\nedges = [4, 2]", "padding: Value error, edges must"),
        ("[padding]\naxis = 's'\nedges = []", "padding.edges: "),
        ("backend = 'torch'", "backend: Input should be 'onnx' or 'simulated'"),
        ("alpha_ms = 2", "alpha_ms: only for backend"),
        ("alpha_ms = inf", "alpha_ms: Input should be a finite number"),
        ("alpha_ms = 1e300", "alpha_ms: Input should be less than or equal to 3600000"),
        ("beta_ms = nan", "beta_ms: Input should be a finite number"),
        ("latency_objective_ms = nan", "latency_objective_ms: "),
        ("latency_objective_ms = inf", "latency_objective_ms: "),
        ("memory_rows = 4097", "memory_rows: Input should be less than or equal to"),
        ("batch_axis = { x = 16 }", "batch_axis.x: Input should be less than 16"),
        (
            "[padding]\naxis = 's'\nedges = [1048577]",
            "padding.edges.0: Input should",
        ),
        (
            f"[padding]\naxis = 's'\nedges = {[*range(1, 66)]}",
            "padding.edges: Tuple should have at most 64 items",
        ),
        (
            "[padding]\naxis = 's'\nedges = [1]\nvalues = { x = inf }",
            "padding.values.x: Input should be a finite number",
        ),
        (f"max_batch = {'9' * 5000}", "holds a number of too many digits"),
        (f"max_batch = 0x{'f' * 16_000}", "max_batch: "),
        (f"a = {'[' * 5000}{']' * 5000}", "model.toml nests values too deeply"),
        (f"a{'.a' * 5000} = 1", "a: unknown key"),
        ("x" * 16_385, "model.toml is longer than 16384 bytes"),
        ("backend = 'simulated'", 'backend "simulated" needs alpha_ms, beta_ms'),
    ],
)
def test_a_wrong_manifest_is_refused_by_its_key(
    tmp_path: Path, toml: str, sentence: str
) -> None:
    with pytest.raises(ModelRefused) as refused:
        manifest(tmp_path, toml)

    assert sentence in str(refused.value)


def test_a_refusal_stays_short(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused) as refused:
        manifest(tmp_path, "\n".join(f"{i:x<600} = 1" for i in range(25)))

    assert len(str(refused.value)) < 4000
    assert "0xxx" in str(refused.value)
    assert str(refused.value).endswith("; and 17 more")


def test_a_simulated_accelerator_needs_no_file(tmp_path: Path) -> None:
    read = read_manifest(put_simulated(tmp_path, "sim", "1", alpha_ms=200))

    assert (read.backend, read.alpha_ms, read.beta_ms) == ("simulated", 200, 0.25)
    assert read.inputs[0].shape == (-1, 4)


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()

    with pytest.raises(ModelRefused, match=r"has no model\.onnx"):
        read_manifest(tmp_path / "1")


def test_a_simulated_accelerator_beside_a_file_is_refused(tmp_path: Path) -> None:
    folder = put_simulated(tmp_path, "sim", "1")
    (folder / "model.onnx").touch()

    with pytest.raises(ModelRefused, match="remove one of them"):
        read_manifest(folder)


@pytest.mark.parametrize(
    "shape",
    [
        "[4, 4]",
        "[-1, 0]",
        "[]",
        "[-1, -9]",
        "[-1, true]",
        "[-1, 99999999999999999999]",
        "[-1, 1073741824, 1073741824]",
    ],
)
def test_a_simulated_shape_is_a_batch_of_rows_of_a_sane_size(
    tmp_path: Path, shape: str
) -> None:
    folder = put_simulated(tmp_path, "sim", "1")
    path = folder / "model.toml"
    path.write_text(path.read_text().replace("[-1, 4]", shape))

    with pytest.raises(ModelRefused, match="shape"):
        read_manifest(folder)


def test_simulated_inputs_have_a_name_each(tmp_path: Path) -> None:
    folder = put_simulated(tmp_path, "sim", "1")
    path = folder / "model.toml"
    path.write_text(
        """
        backend = "simulated"
        alpha_ms = 1
        beta_ms = 1
        [[inputs]]
        name = "X"
        datatype = "FP32"
        shape = [-1]
        [[inputs]]
        name = "X"
        datatype = "FP32"
        shape = [-1]
        """
    )

    with pytest.raises(ModelRefused, match="none twice"):
        read_manifest(folder)
