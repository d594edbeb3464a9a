"""A job's output on a disk that is full."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError
from headrace.jobs.answers import Part
from headrace.jobs.output import Output
from headrace.jobs.outputs import RowError
from headrace.jobs.reading import InputRows
from headrace.jobs.work import Answer
from headrace.jobs.writing import OUTPUT_FORMATS
from tests.jobs.worlds import a_version

FP32 = Datatype.FP32
ROWS = 2000
ROOM = 20_000


@pytest.fixture
def rows(tmp_path: Path) -> InputRows:
    drawn = np.random.default_rng(0).random((ROWS, 64), np.float32)
    np.save(tmp_path / "in.npy", drawn)
    return InputRows([str(tmp_path / "in.npy")])


@pytest.fixture
def full(rows: InputRows) -> Iterator[None]:
    """No file grows beyond a part of what is written."""
    del rows  # they are written before
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def finish(output: Output, answer: Answer) -> None:
    output.add(Part(0, ROWS, 0, answer))
    output.put()


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("suffix", [each.removeprefix(".") for each in OUTPUT_FORMATS])
def test_it_ends_the_job_with_a_reason_and_leaves_nothing(
    tmp_path: Path, rows: InputRows, suffix: str
) -> None:
    served = a_version(("x", FP32, (-1, 64)), outputs=(("y", FP32, (-1, 64)),))
    values = np.random.default_rng(1).random((ROWS, 64), np.float32)
    output = Output(str(tmp_path / f"out.{suffix}"), served, rows)

    with pytest.raises(RequestError, match=f"out.{suffix} cannot be used: .*File too"):
        finish(output, (Tensor("y", FP32, (ROWS, 64), values.tobytes()),))
    output.drop()

    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


@pytest.mark.usefixtures("full")
def test_nor_is_there_room_for_errors(tmp_path: Path, rows: InputRows) -> None:
    served = a_version(("x", FP32, (-1, 64)), outputs=(("y", FP32, (-1, 1)),))
    output = Output(str(tmp_path / "out.npy"), served, rows)

    with pytest.raises(RequestError, match="out.npy.errors.jsonl cannot be used"):
        finish(output, RowError("poison", "it is what it is"))
    output.drop()

    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]
