"""Recorded and replayed requests as a file for analysts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from headrace.domain import Datatype, Tensor
from headrace.errors import SetupError
from headrace.payloads import no_store
from headrace.replay import Payloads
from headrace.replay import export as module
from headrace.replay.export import ParquetExport
from tests.replay.builders import MS, labels, recorded, replayed, scores
from tests.wire.records import a_value

NO_STORE = Payloads(no_store)


def half(*values: float) -> Tensor:
    array = np.asarray([values], "<f2")
    return Tensor("scores", Datatype.FP16, array.shape, array.tobytes())


def words(*values: bytes) -> Tensor:
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in values)
    return Tensor("word", Datatype.BYTES, (len(values),), raw)


def test_a_row_is_a_request_with_its_answers(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    export = ParquetExport(file, NO_STORE, is_replayed=True)
    one = recorded(labels(3, 5), scores([0.5, 0.5], [1, 0]))
    export.take(one, replayed(one, labels(3, 6)))
    silent = recorded(is_ended=False, offset=8)
    export.take(silent, replayed(silent, status="expired"))
    assert not file.exists()
    export.close()

    first, second = pq.read_table(file).to_pylist()

    assert (first["request_id"], first["tenant"]) == (one.id, "acme")
    assert first["client_id"] == "mine"
    assert first["asked_at"] == datetime.fromtimestamp(7 * MS / 1e6, UTC)
    assert (first["latency_ms"], first["status"], first["rows"]) == (12.0, "ok", 2)
    assert (first["input_x"], first["input_x_shape"]) == ([0.0] * 8, [2, 4])
    assert (first["output_label"], first["replayed_label"]) == ([3, 5], [3, 6])
    assert first["output_scores"] == [0.5, 0.5, 1.0, 0.0]
    assert (first["version"], first["replayed_version"]) == ("1", "2")
    assert (second["status"], second["output_label"]) == (None, None)
    assert (second["replayed_status"], second["replayed_label"]) == ("expired", None)
    assert sorted(tmp_path.iterdir()) == [file]


def test_what_an_answer_does_not_say_is_null(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    export = ParquetExport(file, NO_STORE, is_replayed=True)
    one = recorded(labels(3, 5))
    assert one.ending is not None
    silent = msgspec.structs.replace(one.ending, run_us=0, batch_rows=0, version="")
    quiet = msgspec.structs.replace(one, ending=silent)
    export.take(quiet, replayed(one, labels(3, 5)))
    export.close()

    (row,) = pq.read_table(file).to_pylist()

    names = ("run_ms", "batch_rows", "version", "text", "replayed_text")
    assert [row[name] for name in names] == [None] * 5


def test_versions_with_other_outputs_share_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP_ROWS", 2)
    file = tmp_path / "out.parquet"
    export = ParquetExport(file, NO_STORE, is_replayed=False)
    outputs = [(scores([1, 2]),), (half(3, 4),), (words(b"a", b"b"),), (), ()]
    for offset, each in enumerate(outputs):
        export.take(recorded(*each, offset=offset))
    export.close()

    table = pq.read_table(file)

    assert table.num_rows == export.rows == 5
    assert table["output_scores_fp32"].to_pylist() == [[1, 2], None, None, None, None]
    assert table["output_scores_fp16"].to_pylist() == [None, [3, 4], None, None, None]
    assert table["output_word"].to_pylist() == [None, None, ["a", "b"], None, None]


def test_typed_contents_are_exported_too(tmp_path: Path) -> None:
    value = a_value()
    del value.raw_input_contents[:]
    value.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    one = recorded()
    record = msgspec.structs.replace(one.record, value=value.SerializeToString())
    export = ParquetExport(tmp_path / "out.parquet", NO_STORE, is_replayed=False)
    export.take(msgspec.structs.replace(one, record=record))
    torn = msgspec.structs.replace(one.record, value=b"\xff")
    export.take(msgspec.structs.replace(one, record=torn))
    export.close()

    table = pq.read_table(tmp_path / "out.parquet")

    assert table["input_x"].to_pylist() == [[1, 2, 3, 4], None]


def test_nothing_is_left_of_what_was_not_finished(tmp_path: Path) -> None:
    export = ParquetExport(tmp_path / "out.parquet", NO_STORE, is_replayed=False)
    export.take(recorded())
    export.discard()

    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SetupError, match="cannot be written"):
        ParquetExport(tmp_path / "no" / "out.parquet", NO_STORE, is_replayed=False)


def test_no_requests_are_a_file_without_rows(tmp_path: Path) -> None:
    export = ParquetExport(tmp_path / "out.parquet", NO_STORE, is_replayed=False)
    export.close()

    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0
