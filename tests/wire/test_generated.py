"""Generated files are in step with what they are generated from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.wire._generated import open_inference_pb2 as oip

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run(
        [sys.executable, ROOT / "schemas/generate.py", folder], check=True, timeout=60
    )
    return folder


def test_generated_files_are_in_step(fresh: Path) -> None:
    written = {
        path.relative_to(fresh): path.read_text()
        for path in fresh.rglob("*")
        if path.is_file()
    }
    assert len(written) == 11
    for path, text in written.items():
        assert (ROOT / path).read_text() == text, f"{path}: run `make schemas`"


def test_no_generated_file_has_lost_its_source(fresh: Path) -> None:
    committed = {
        path.relative_to(ROOT)
        for pattern in (
            "libs/headrace/lifecycle/README.md",
            "libs/headrace/wire/_generated/*_pb2.py*",
            "schemas/*.schema.*",
        )
        for path in ROOT.glob(pattern)
    }
    assert committed == {
        path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()
    }


def numbers(
    message: type[oip.ModelInferRequest | oip.ModelInferResponse],
) -> dict[str, int]:
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


def test_field_numbers_are_those_of_the_protocol() -> None:
    assert numbers(oip.ModelInferRequest) == {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "inputs": 5,
        "outputs": 6,
        "raw_input_contents": 7,
    }
    assert numbers(oip.ModelInferResponse) == {
        "model_name": 1,
        "model_version": 2,
        "id": 3,
        "parameters": 4,
        "outputs": 5,
        "raw_output_contents": 6,
    }
    contents = oip.InferTensorContents.DESCRIPTOR.fields
    assert [(field.name, field.number) for field in contents] == [
        ("bool_contents", 1),
        ("int_contents", 2),
        ("int64_contents", 3),
        ("uint_contents", 4),
        ("uint64_contents", 5),
        ("fp32_contents", 6),
        ("fp64_contents", 7),
        ("bytes_contents", 8),
    ]
    choice = oip.InferParameter.DESCRIPTOR.fields
    assert [(field.name, field.number) for field in choice] == [
        ("bool_param", 1),
        ("int64_param", 2),
        ("string_param", 3),
        ("double_param", 4),
        ("uint64_param", 5),
    ]
