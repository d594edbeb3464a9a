from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ModelRefused
from headrace.repository import check_external_data
from tests.models import graphs, zoo
from tests.models.folders import put_version


@pytest.mark.parametrize("build", [zoo.external_data, zoo.external_data_in_subgraph])
@pytest.mark.parametrize(
    "location",
    [
        "../../../etc/hosts",
        "/etc/hosts",
        "sub/../../other.bin",
        "..\\other.bin",
        "../does-not-exist",
        "/does-not-exist",
    ],
)
def test_data_outside_the_folder_is_refused_whether_or_not_it_exists(
    tmp_path: Path, build: object, location: str
) -> None:
    folder = put_version(tmp_path, "m", "1", build(location))

    with pytest.raises(ModelRefused) as refused:
        check_external_data(folder / "model.onnx")

    assert str(refused.value) == (
        "tensor 'w' keeps its data outside the version folder; external data must be "
        "a relative path below it"
    )


def test_data_behind_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "m", "1", zoo.external_data("weights.bin"))
    (tmp_path / "outside.bin").write_bytes(bytes(32))
    (folder / "weights.bin").symlink_to(tmp_path / "outside.bin")

    with pytest.raises(ModelRefused, match="outside the version folder"):
        check_external_data(folder / "model.onnx")


def test_missing_data_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "m", "1", zoo.external_data("weights.bin"))

    with pytest.raises(ModelRefused, match=r"'weights\.bin', which is missing"):
        check_external_data(folder / "model.onnx")


def test_data_beside_the_model_is_fine(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "m", "1", zoo.external_data("data/weights.bin"))
    (folder / "data").mkdir()
    (folder / "data" / "weights.bin").write_bytes(bytes(32))

    check_external_data(folder / "model.onnx")


def test_a_model_without_external_data_is_fine(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "m", "1", graphs.slow(1, width=8))

    check_external_data(folder / "model.onnx")


def test_a_file_that_is_no_protobuf_is_refused(tmp_path: Path) -> None:
    folder = put_version(tmp_path, "m", "1", zoo.refused_corrupt())

    with pytest.raises(ModelRefused, match="not a readable ONNX file"):
        check_external_data(folder / "model.onnx")
