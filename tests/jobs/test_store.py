from __future__ import annotations

import http.server
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import RequestError
from headrace.jobs.reading import InputRows
from headrace.jobs.store import beside, check_may_write, find, suffixes


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of Parquet, one of them in a folder, and an archive of both."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "of.parquet").mkdir()
    for number, name in enumerate(("a.parquet", "in/b.parquet")):
        pq.write_table(pa.table({"n": [number]}), tmp_path / name)
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.write(tmp_path / "a.parquet", "a.parquet")
        archive.write(tmp_path / "in" / "b.parquet", "in/b.parquet")
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def numbers_in(*patterns: str) -> list[int]:
    """As two processes read them: one finds the files, the other knows their names."""
    rows = InputRows([file.url for file in find(patterns)])
    return [n for chunk in rows.chunks() for n in chunk.batch.column(0).to_pylist()]


def test_files_are_read_wherever_they_are(folder: Path, served: str) -> None:
    assert numbers_in(f"{served}/in/b.parquet", f"{served}/a.parquet") == [1, 0]
    assert numbers_in(f"{served}/a.parquet?signed=*") == [0]
    assert numbers_in(f"simplecache::{served}/a.parquet") == [0]
    assert numbers_in(f"zip://in/b.parquet::file://{folder}/z.zip") == [1]
    assert numbers_in(f"zip://*/*.parquet::{folder}/z.zip") == [1]
    assert numbers_in(f"{served}/in/*.parquet") == [1]
    assert numbers_in(f"file://{folder}/**/*.parquet") == [0, 1]


def test_a_name_may_have_the_marks_of_a_pattern(folder: Path) -> None:
    (folder / "a.parquet").rename(folder / "[ab]*.parquet")
    assert numbers_in(f"{folder}/[ab]*.parquet") == [0]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("{served}/none.parquet", "there is no file {served}/none.parquet: 404"),
        ("http://127.0.0.1:9/a.parquet", "Cannot connect to host 127.0.0.1:9"),
        ("zip://none.csv::{folder}/z.zip", "there is no file zip://none.csv::"),
        ("{folder}/in", "is a folder: name its files, as in {folder}/in/*.parquet"),
        ("s3://bucket/a.parquet", "cannot be used: Install s3fs to access S3"),
        ("gs://bucket/a.parquet", "cannot be used: Please install gcsfs"),
        ("nonsense://a.parquet", "cannot be used: Protocol not known: nonsense"),
        ("{folder}/*.csv", "there is no file {folder}/*.csv"),
    ],
)
def test_what_cannot_be_found_is_told_in_one_line(
    folder: Path, served: str, url: str, told: str
) -> None:
    with pytest.raises(RequestError) as error:
        find([url.format(folder=folder, served=served)])
    assert told.format(folder=folder, served=served) in str(error.value)
    assert "\n" not in str(error.value)


def test_where_nothing_can_be_put_is_told_before(folder: Path, served: str) -> None:
    for url, told in {
        f"{served}/out.parquet": "it can only be read",
        f"zip://out.parquet::{folder}/z.zip": "cannot be used",
        "memory://out.parquet": "would be gone with the process that writes it",
        "/dev/null": "is no regular file",
    }.items():
        with pytest.raises(RequestError, match=told):
            check_may_write(url)
    check_may_write(str(folder / "a.parquet"))
    check_may_write(str(folder / "new.parquet"))
    check_may_write(f"simplecache::file://{folder}/new.parquet")
    assert not list(folder.glob("new*"))


def test_a_chain_of_stores_names_one_file() -> None:
    chain = "simplecache::zip://in/a.csv.gz::s3://bucket/z.zip"
    assert suffixes(chain) == (".csv", ".gz")
    assert beside(chain) == "simplecache::zip://in/a.csv.gz.part::s3://bucket/z.zip"
    assert suffixes("https://host/A.CSV?signed=a.parquet") == (".csv", "")
