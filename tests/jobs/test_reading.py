from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.jobs import find
from headrace.jobs import textual as lines_of
from headrace.jobs.chunks import Chunk
from headrace.jobs.reading import InputRows
from headrace.jobs.textual import Fed


def put(folder: Path, name: str, rows: int = 10) -> Path:
    """A file of whatever format with the columns ``n`` and, where it can, ``x``."""
    path = folder / name
    table = pa.table(
        {"n": np.arange(rows), "x": [[float(row)] * (row % 3) for row in range(rows)]}
    )
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path, row_group_size=4)
        case ".arrow":
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        case ".arrows":
            with pa.ipc.new_stream(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
        case ".npy":
            np.save(path, np.arange(rows * 2, dtype=np.float32).reshape(rows, 2))
        case ".csv":
            path.write_text("n\n" + "".join(f"{row}\n" for row in range(rows)))
        case ".jsonl":
            text = "\n".join(json.dumps(each) for each in table.to_pylist())
            path.write_text(text)
        case ".gz":
            path.write_bytes(gzip.compress(put(folder, path.stem, rows).read_bytes()))
    return path


def numbers(chunks: list[Chunk]) -> list[int]:
    found: list[int] = []
    for chunk in chunks:
        assert chunk.first == (found[-1] + 1 if found else chunk.first)
        column = chunk.batch.column(0)
        if pa.types.is_fixed_size_list(column.type):
            found += [int(row[0]) // 2 for row in column.to_pylist()]
        else:
            found += [int(each) for each in column.to_pylist()]
    return found


@pytest.mark.parametrize(
    "name",
    ["a.parquet", "a.arrow", "a.arrows", "a.npy", "a.csv", "a.jsonl", "a.csv.gz"],
)
@pytest.mark.parametrize("start", [0, 5, 10])
def test_rows_are_read_from_any_row_on(tmp_path: Path, name: str, start: int) -> None:
    rows = InputRows([str(put(tmp_path, name))])
    chunks = list(rows.chunks(start))
    assert numbers(chunks) == list(range(start, 10))
    assert rows.rows in {10, None}


def test_files_follow_one_another(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "c.txt"):
        put(tmp_path, name, 3)
    urls = [each.url for each in find([str(tmp_path / "*.parquet")])]
    assert [url.rpartition("/")[2] for url in urls] == ["a.parquet", "b.parquet"]

    rows = InputRows(urls)

    assert rows.rows == 6
    assert [chunk.first for chunk in rows.chunks(4)] == [4]
    assert sum(chunk.batch.num_rows for chunk in rows.chunks()) == 6


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.txt", b"", "its name must end in"),
        ("a.npy.gz", b"", "its name must end in"),
        ("a.parquet", b"no", "cannot be"),
        ("a.csv", b"a,a\n1,2\n", "must name the columns, each once"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RequestError, match=text):
        InputRows([str(path)])


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    one, other = put(tmp_path, "a.parquet"), tmp_path / "b.parquet"
    pq.write_table(pa.table({"n": ["text"]}), other)
    with pytest.raises(RequestError, match=r"b\.parquet has the columns n: string"):
        _ = InputRows([str(one), str(other)]).rows


def test_a_pattern_without_files_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for name in ("*.parquet", "a.parquet"):
        with pytest.raises(RequestError, match="there is no file"):
            find([str(tmp_path / name)])


def test_a_line_that_breaks_the_format_keeps_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a,b\n1,2\n3\n4,"5\n5"\n6,7,8\n')
    chunks = list(InputRows([str(path)]).chunks())
    assert pa.Table.from_batches([chunk.batch for chunk in chunks]).to_pydict() == {
        "a": ["1", "3", "4", "6"],
        "b": ["2", None, "5\n5", "7"],
    }
    broken = {
        chunk.first + row: text
        for chunk in chunks
        for row, text in chunk.broken.items()
    }
    assert broken == {
        1: "the line has 1 fields, expected 2",
        3: "the line has 3 fields, expected 2",
    }


def rows_and_faults(path: Path) -> tuple[dict[str, list[object]], dict[int, str]]:
    chunks = list(InputRows([str(path)]).chunks())
    table = pa.Table.from_batches([chunk.batch for chunk in chunks])
    faults = {
        chunk.first + row: text
        for chunk in chunks
        for row, text in chunk.broken.items()
    }
    return table.to_pydict(), faults


def test_what_is_not_utf_8_breaks_its_row_alone(tmp_path: Path) -> None:
    written = pa.array([b"a", b"b\xff", None], pa.binary()).view(pa.string())
    listed = pa.ListArray.from_arrays([0, 1, 2, 3], written)
    pq.write_table(pa.table({"t": written, "l": listed}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_bytes(b"t,n\na,1\nb\xff,2\nc,3\n")
    (tmp_path / "a.jsonl").write_bytes(b'{"t":"a"}\n{"t":"b\xff"}\n{"t":"c"}\n')

    rows, faults = rows_and_faults(tmp_path / "a.parquet")
    assert rows == {"t": ["a", "b\ufffd", None], "l": [["a"], None, [None]]}
    assert [*faults] == [1]
    rows, faults = rows_and_faults(tmp_path / "a.csv")
    assert rows == {"t": ["a", "b\ufffd", "c"], "n": ["1", "2", "3"]}
    assert faults[1].startswith("column 't' is not UTF-8: ")
    rows, faults = rows_and_faults(tmp_path / "a.jsonl")
    assert rows == {"t": ["a", "b\ufffd", "c"]}
    assert [*faults] == [1]


def test_half_a_pair_of_utf_16_breaks_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t":"\\ud800"}\n{"t":"\\ud83d\\ude00","\\udfff":1}\n{"t":"c"}\n')
    rows, faults = rows_and_faults(path)
    assert rows["t"] == [None, "\U0001f600", "c"]
    assert [*faults] == [0]
    assert faults[0].encode()


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    for text in ("a,b", "a,b\n", "a,b\r\n"):
        (tmp_path / "a.csv").write_text(text)
        rows = InputRows([str(tmp_path / "a.csv")])
        assert [chunk.batch.num_rows for chunk in rows.chunks()] in ([], [0])
        assert rows.schema.names == ["a", "b"]


def test_numbers_of_json_may_become_fractions_where_a_float_is_fed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_of, "CHUNK_BYTES", 8)
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": [1]}\n{"x": [1.5]}\n')
    fed = Fed(frozenset("x"), frozenset("x"))
    rows = InputRows([str(path)], fed)
    found = [chunk.batch.to_pydict()["x"] for chunk in rows.chunks()]
    assert found == [[[1.0]], [[1.5]]]
    assert [chunk.broken for chunk in rows.chunks()] == [{}, {}]


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(4, 40))
def test_broken_lines_of_json_stand_alone(
    tmp_path_factory: pytest.TempPathFactory, good: list[bool], chunk_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_text(
        '{"n": -1}\n'
        + "".join(
            f'{{"n": {row}}}\n' if ok else "{,\n\n" for row, ok in enumerate(good)
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_of, "CHUNK_BYTES", chunk_bytes)
        chunks = list(InputRows([str(path)]).chunks())
    values = [each for chunk in chunks for each in chunk.batch.column(0).to_pylist()]
    broken = {chunk.first + row for chunk in chunks for row in chunk.broken}
    assert values == [-1, *[row if ok else None for row, ok in enumerate(good)]]
    assert broken == {row + 1 for row, ok in enumerate(good) if not ok}


def test_a_line_that_does_not_fit_keeps_what_can_be_read_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    first = '{"n": 1, "x": [1.5], "s": "a"}\n'
    monkeypatch.setattr(lines_of, "CHUNK_BYTES", len(first))
    path.write_text(
        first
        + '\n{"n": " 2", "x": ["3", NaN], "s": 7}\n'
        + '{"n": "many", "x": [true], "s": "c"}\n{"n": 4, "x": 5, "s": "d"}\n[]\n{\n'
    )
    rows = InputRows([str(path)])
    chunks = list(rows.chunks())
    found = pa.Table.from_batches([chunk.batch for chunk in chunks])
    assert found["n"].to_pylist() == [1, 2, None, 4, None, None]
    assert str(found["x"].to_pylist()) == "[[1.5], [3.0, nan], None, None, None, None]"
    assert found["s"].to_pylist() == ["a", "7", "c", "d", None, None]
    broken = {
        chunk.first + row: text
        for chunk in chunks
        for row, text in chunk.broken.items()
    }
    before = "as in the lines before"
    assert broken[2] == (
        f"line 4 of a.jsonl: 'n' is \"many\", expected a whole number {before}"
    )
    assert broken[3] == f"line 5 of a.jsonl: 'x' is 5, expected a list {before}"
    assert broken[4] == "line 6 of a.jsonl: it is no JSON object: write {...}"
    assert broken[5].startswith("line 7 of a.jsonl: it is no JSON: ")
    assert sorted(broken) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("fits", "beyond", "shown"),
    [
        ("1.5", "1e999", '"1e999"'),
        ("[1, 2.5]", "[1, -1e400]", '[1, "-1e400"]'),
        ("[[1.0], [2]]", "[[1.0], [1e309]]", '[[1.0], ["1e309"]]'),
        ('{"a": 1.5}', '{"a": 1e999}', '{"a": "1e999"}'),
        ("-Infinity", "-1e999", '"-1e999"'),
    ],
)
def test_a_number_that_is_too_large_is_no_infinity(
    tmp_path: Path, fits: str, beyond: str, shown: str
) -> None:
    path = tmp_path / "a.jsonl"
    lines = [f'{{"x": {each}}}\n' for each in (fits, beyond, fits)]
    path.write_text("".join(lines * 200))
    (chunk,) = InputRows([str(path)]).chunks()
    read = chunk.batch.column(0).to_pylist()
    assert [row for row, each in enumerate(read) if each is None] == [*chunk.broken]
    assert [*chunk.broken] == list(range(1, 600, 3))
    assert chunk.broken[1] == (
        f"line 2 of a.jsonl: 'x' is {shown}, expected a number that fits double as in "
        "the lines before"
    )


def test_numbers_and_text_in_one_column_are_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1, "x": [1]}\n{"n": "b", "x": ["2"]}\n' * 300)
    (chunk,) = InputRows([str(path)]).chunks()
    assert chunk.batch.to_pydict() == {
        "n": ["1", "b"] * 300,
        "x": [["1"], ["2"]] * 300,
    }
    assert chunk.broken == {}


def test_a_file_without_a_line_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    with pytest.raises(RequestError, match="has no line"):
        InputRows([str(path)])


FEDS = Fed(frozenset("x"), frozenset("x"))


def read_with(paths: list[Path], fed: Fed = FEDS) -> tuple[list[object], list[int]]:
    """The rows of these files, and which of them are broken."""
    chunks = list(InputRows([str(each) for each in paths]).with_fed(fed).chunks())
    rows: list[object] = []
    for chunk in chunks:
        rows += chunk.batch.to_pylist()
    return rows, [chunk.first + row for chunk in chunks for row in chunk.broken]


def test_what_feeds_no_model_breaks_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that looks like a time, lists and objects of any make, and what is null as
    far as the first lines go."""
    path = tmp_path / "a.jsonl"
    first = '{"x": [1], "at": "2024-01-01", "o": {"a": [1, {"b": 2}]}, "none": null}\n'
    monkeypatch.setattr(lines_of, "CHUNK_BYTES", len(first))
    path.write_text(first + '{"x": [2], "at": "n/a", "o": [7], "none": [{"c": 1.5}]}\n')
    assert read_with([path]) == (
        [
            {"x": [1], "at": "2024-01-01", "o": '{"a":[1,{"b":2}]}', "none": None},
            {"x": [2], "at": "n/a", "o": "[7]", "none": '[{"c":1.5}]'},
        ],
        [],
    )


@pytest.mark.parametrize("more", ["", "{\n"])
def test_a_whole_number_of_any_size_breaks_no_row(tmp_path: Path, more: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"x": [1], "n": 1}}\n{{"x": [2], "n": {2**70}}}\n{more}')
    rows, broken = read_with([path])
    assert rows[:2] == [{"x": [1], "n": 1.0}, {"x": [2], "n": float(2**70)}]
    assert broken == ([2] if more else [])


def test_a_list_that_feeds_a_model_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": [1], "y": [1]}\n{"x": 5, "y": 5}\n')
    rows, broken = read_with([path])
    assert rows == [{"x": [1], "y": "[1]"}, {"x": None, "y": "5"}]
    assert broken == [1]


def test_files_of_lines_share_their_columns(tmp_path: Path) -> None:
    for name, text in {
        "1": "\n",
        "2": '{"x": [1], "c": null}\n',
        "3": '{"x": [0.5], "c": 7, "d": true}\n',
        "4": '{"c": "s"}\n',
    }.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    rows, broken = read_with(sorted(tmp_path.iterdir()))
    assert rows == [
        {"x": [1], "c": None, "d": None},
        {"x": [0.5], "c": "7", "d": True},
        {"x": None, "c": "s", "d": None},
    ]
    assert broken == []


def test_every_file_is_held_against_the_first_before_a_job_begins(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 2), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((2, 3), np.float32))
    rows = InputRows([str(tmp_path / "a.npy"), str(tmp_path / "b.npy")])
    with pytest.raises(RequestError, match=r"b\.npy has the columns"):
        rows.check()
