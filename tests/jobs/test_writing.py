from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.domain import Datatype, Tensor
from headrace.errors import RequestError
from headrace.jobs import errors_url
from headrace.jobs import output as module
from headrace.jobs.answers import Part
from headrace.jobs.output import Output, check_output
from headrace.jobs.outputs import OutputColumns, RowError
from headrace.jobs.reading import InputRows
from headrace.wire import pack_bytes
from tests.jobs.worlds import a_version

FP32, INT64, BYTES = Datatype.FP32, Datatype.INT64, Datatype.BYTES
LOST = RowError("poison", "bad")


def fp32(*shape: int, first: float = 0) -> Tensor:
    values = np.arange(first, first + np.prod(shape), dtype="<f4")
    return Tensor("y", FP32, shape, values.tobytes())


def columns(
    parts: list[Part[tuple[Tensor, ...] | RowError]],
    *outputs: tuple[str, Datatype, tuple[int, ...]],
    axes: dict[str, int] | None = None,
) -> list[list[object]]:
    served = a_version(("x", FP32, (-1, 1)), outputs=outputs, axes=axes)
    made = OutputColumns(served, ["x", "y.out"])
    found = made.columns(parts)
    assert [each.type for each in found] == [field.type for field in made.fields]
    for each in found:
        each.validate(full=True)
    return [each.to_pylist() for each in found]


def test_parts_become_rows_and_a_row_without_outputs_is_null() -> None:
    parts = [
        Part(0, 2, 0, (fp32(2, 2),)),
        Part(2, 1, 0, LOST),
        Part(3, 1, 2, (fp32(3, 2, first=10),)),
    ]
    assert columns(parts, ("y", FP32, (-1, 2))) == [
        [[0, 1], [2, 3], None, [14, 15]],
    ]


def test_rows_of_any_length_and_of_several_axes_become_lists() -> None:
    parts = [
        Part(0, 2, 0, (fp32(2, 1, 2),)),
        Part(2, 1, 0, LOST),
        Part(3, 1, 0, (fp32(1, 2, 1),)),
    ]
    assert columns(parts, ("y", FP32, (-1, -1, -1))) == [
        [[[0, 1]], [[2, 3]], None, [[0], [1]]],
    ]
    assert columns(parts[:1], ("y", FP32, (-1, 1, 2))) == [[[[0, 1]], [[2, 3]]]]


def test_scalars_text_and_half_floats_have_their_columns() -> None:
    half = Tensor("h", Datatype.BF16, (2,), np.array([0x3FC0, 0], "<u2").tobytes())
    text = Tensor("t", BYTES, (2, 1), pack_bytes([b"a", "ü".encode()]))
    parts = [Part(0, 2, 0, (half, text)), Part(2, 1, 0, LOST)]
    assert columns(parts, ("h", Datatype.BF16, (-1,)), ("t", BYTES, (-1, 1))) == [
        [1.5, 0.0, None],
        [["a"], ["ü"], None],
    ]


def test_rows_on_another_axis_and_values_that_all_share() -> None:
    axes = {"x": 0, "y": 1, "s": -1}
    shared = Tensor("s", INT64, (1,), np.array([7], "<i8").tobytes())
    parts = [Part(1, 1, 1, (fp32(2, 2), shared))]
    assert columns(parts, ("y", FP32, (2, -1)), ("s", INT64, (1,)), axes=axes) == [
        [[1, 3]],
        [[7]],
    ]


SERVED = a_version(
    ("x", FP32, (-1, 2)),
    outputs=(("x", FP32, (-1, 2)), ("label", INT64, (-1,))),
)


def write(folder: Path, name: str) -> InputRows:
    """Three rows, the second of which failed; through the file and back."""
    source = folder / "in.npy"
    np.save(source, np.arange(6, dtype=np.float32).reshape(3, 2))
    output = Output(str(folder / name), SERVED, InputRows([str(source)]))
    label = Tensor("label", INT64, (1,), np.array([5], "<i8").tobytes())
    output.add(Part(0, 1, 0, (fp32(1, 2), label)))
    output.add(Part(1, 1, 0, LOST))
    assert not (folder / name).exists()
    output.add(Part(2, 1, 0, (fp32(1, 2, first=8), label)))
    output.put()
    output.drop()
    return InputRows([str(folder / name)])


@pytest.mark.parametrize("name", ["o.parquet", "o.arrow", "o.arrows", "o.jsonl"])
def test_an_output_has_the_inputs_columns_and_the_models(
    tmp_path: Path, name: str
) -> None:
    (chunk,) = write(tmp_path, name).chunks()
    assert chunk.batch.to_pydict() == {
        "array": [[0, 1], [2, 3], [4, 5]],
        "x": [[0, 1], None, [8, 9]],
        "label": [5, None, 5],
    }
    assert Path(errors_url(str(tmp_path / name))).read_text() == (
        '{"row":1,"reason":"poison","text":"bad"}\n'
    )
    assert not list(tmp_path.glob("*.part"))


def test_csv_has_a_column_for_each_element(tmp_path: Path) -> None:
    write(tmp_path, "o.csv")
    assert (tmp_path / "o.csv").read_text() == (
        '"array.0","array.1","x.0","x.1","label"\n0,1,0,1,5\n2,3,,,\n4,5,8,9,5\n'
    )


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv"])
def test_what_is_no_number_is_no_null(tmp_path: Path, name: str) -> None:
    """As the ingresses write it: a null would say that the row failed."""
    source = tmp_path / "in.parquet"
    odd = [[np.nan, 1.0], None, [np.inf, -np.inf]]
    pa.parquet.write_table(pa.table({"a": odd, "b": [1.0, np.nan, None]}), source)
    served = a_version(("a", FP32, (-1, 2)), outputs=(("y", FP32, (-1, -1)),))
    output = Output(str(tmp_path / name), served, InputRows([str(source)]))
    nan = Tensor("y", FP32, (1, 2), np.array([np.nan, 2], "<f4").tobytes())
    for row, answer in enumerate([(nan,), LOST, (nan,)]):
        output.add(Part(row, 1, 0, answer))
    output.put()
    found = (tmp_path / name).read_text()
    if name == "o.csv":
        assert found == (
            '"a","b","y"\n"[NaN,1.0]",1,"[NaN,2.0]"\n,nan,\n'
            '"[Infinity,-Infinity]",,"[NaN,2.0]"\n'
        )
        return
    assert found == (
        '{"a":[NaN,1.0],"b":1.0,"y":[NaN,2.0]}\n'
        '{"a":null,"b":NaN,"y":null}\n'
        '{"a":[Infinity,-Infinity],"b":null,"y":[NaN,2.0]}\n'
    )


def test_numpy_has_the_outputs_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((2, 2), np.float32))
    served = a_version(("x", FP32, (-1, 2)), outputs=(("y", FP32, (-1, 2)),))
    rows = InputRows([str(tmp_path / "in.npy")])
    output = Output(str(tmp_path / "o.npy"), served, rows)
    output.add(Part(0, 1, 0, (fp32(1, 2, first=3),)))
    output.add(Part(1, 1, 0, LOST))
    output.put()
    np.testing.assert_array_equal(
        np.load(tmp_path / "o.npy"), np.array([[3, 4], [np.nan, np.nan]], np.float32)
    )


def test_several_outputs_are_the_fields_of_an_array(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 2), np.float32))
    rows = InputRows([str(tmp_path / "in.npy")])
    output = Output(str(tmp_path / "o.npy"), SERVED, rows)
    label = Tensor("label", INT64, (1,), np.array([5], "<i8").tobytes())
    output.add(Part(0, 1, 0, (fp32(1, 2, first=3), label)))
    output.put()
    found = np.load(tmp_path / "o.npy")
    assert found["x"].tolist() == [[3, 4]]
    assert found["label"].tolist() == [5]


@pytest.mark.parametrize(
    ("name", "datatype", "text"),
    [
        ("o.xlsx", FP32, "its name must end in"),
        ("o.csv.gz", FP32, "its name must end in"),
        ("o.npy", BYTES, "which .npy cannot hold"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, name: str, datatype: Datatype, text: str
) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 2), np.float32))
    served = a_version(("x", FP32, (-1, 2)), outputs=(("y", datatype, (-1,)),))
    with pytest.raises(RequestError, match=text):
        Output(str(tmp_path / name), served, InputRows([str(tmp_path / "in.npy")]))
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def test_a_job_that_stops_leaves_what_stood_there(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((1, 2), np.float32))
    (tmp_path / "o.parquet").write_text("old")
    output = Output(
        str(tmp_path / "o.parquet"), SERVED, InputRows([str(tmp_path / "in.npy")])
    )
    output.drop()
    assert (tmp_path / "o.parquet").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


def test_an_empty_input_gives_an_empty_output(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((0, 2), np.float32))
    rows = InputRows([str(tmp_path / "in.npy")])
    output = Output(str(tmp_path / "o.parquet"), SERVED, rows)
    output.put()
    assert pa.parquet.read_table(tmp_path / "o.parquet").num_rows == 0


def test_columns_of_every_type_are_kept_in_text(tmp_path: Path) -> None:
    """Nanoseconds as pandas has them, bytes, maps: none may end a job at its end."""
    source = tmp_path / "in.parquet"
    columns = {
        "x": pa.array([[1.0, 2.0], None]),
        "at": pa.array([1, None], pa.timestamp("ns")),
        "took": pa.array([[5], []], pa.list_(pa.duration("ns"))),
        "raw": pa.array([b"\xff", None]),
        "map": pa.array([[("k", 0.5)], None], pa.map_(pa.string(), pa.float64())),
        "kind": pa.array(["a", None]).dictionary_encode(),
    }
    pa.parquet.write_table(pa.table(columns), source)
    served = a_version(("x", FP32, (-1, 2)), outputs=(("y", FP32, (-1,)),))
    for name in ("o.jsonl", "o.csv"):
        rows = InputRows([str(source)])
        check_output(name, served, rows)
        output = Output(str(tmp_path / name), served, rows)
        output.add(Part(0, 1, 0, (fp32(1, first=3),)))
        output.add(Part(1, 1, 0, LOST))
        output.put()
    assert (tmp_path / "o.jsonl").read_text().splitlines() == [
        (
            '{"x":[1.0,2.0],"at":"1970-01-01T00:00:00.000000001","took":["5 ns"],'
            '"raw":"/w==","map":[["k",0.5]],"kind":"a","y":3.0}'
        ),
        '{"x":null,"at":null,"took":[],"raw":null,"map":null,"kind":null,"y":null}',
    ]
    assert (tmp_path / "o.csv").read_text().splitlines() == [
        '"x","at","took","raw","map","kind","y"',
        (
            '"[1.0,2.0]",1970-01-01 00:00:00.000000001,"[""5 ns""]","/w==",'
            '"[[""k"",0.5]]","a",3'
        ),
        ',,"[]",,,,',
    ]


def test_a_column_that_a_format_cannot_hold_is_refused_at_once(tmp_path: Path) -> None:
    source = tmp_path / "in.arrow"
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1.0]]))
    table = pa.table({"x": pa.array([[1.0, 2.0]]), "d": dictionary})
    with pa.ipc.new_file(str(source), table.schema) as writer:
        writer.write_table(table)
    served = a_version(("x", FP32, (-1, 2)), outputs=(("y", FP32, (-1,)),))
    rows = InputRows([str(source)])
    check_output("o.csv", served, rows)
    with pytest.raises(RequestError, match="nested dictionary"):
        check_output("o.parquet", served, rows)


def test_large_outputs_are_written_before_their_chunk_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes of input may become a megabyte of output."""
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 30)
    source, target = tmp_path / "in.npy", tmp_path / "o.arrow"
    np.save(source, np.zeros((7, 2), np.float32))
    served = a_version(("x", FP32, (-1, 2)), outputs=(("y", FP32, (-1, 2)),))
    output = Output(str(target), served, InputRows([str(source)]))
    for first, rows in ((0, 2), (2, 1), (3, 3), (6, 1)):
        output.add(Part(first, rows, 1, (fp32(rows + 1, 2, first=2 * first - 2),)))
    output.put()
    found = pa.ipc.open_file(str(target))
    batches = [found.get_batch(each) for each in range(found.num_record_batches)]
    assert [batch.num_rows for batch in batches] == [3, 3, 1]
    rows_of_all = [row for batch in batches for row in batch["y"].to_pylist()]
    assert rows_of_all == [[2 * row, 2 * row + 1] for row in range(7)]
