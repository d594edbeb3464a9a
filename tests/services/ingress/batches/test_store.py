from __future__ import annotations

from pathlib import Path

import pytest

from headrace.clock import wall_us
from headrace.errors import SetupError, StoreUnavailable
from services.ingress.batches.store import FileStore, is_file_id, new_file_id, of_batch


def an_id(number: int) -> str:
    return new_file_id(f"{number:032x}")


def put(
    store: FileStore, number: int, content: bytes = b"abc", tenant: str = "t"
) -> str:
    writing = store.begin(tenant, an_id(number))
    writing.write(content)
    return writing.keep(f"{number}.jsonl", "batch").id


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "files"))


def test_a_file_is_there_once_it_is_whole(store: FileStore) -> None:
    writing = store.begin("t", an_id(1))
    writing.write(b"ab")
    assert store.describe("t", an_id(1)) is None
    writing.write(b"c")
    kept = writing.keep("in.jsonl", "batch")
    writing.drop()

    assert store.describe("t", an_id(1)) == kept
    assert (kept.bytes, kept.filename, kept.purpose) == (3, "in.jsonl", "batch")
    with store.open("t", an_id(1)) as file:
        assert file.read() == b"abc"
    assert store.describe("other", an_id(1)) is None


def test_what_was_left_unfinished_leaves_nothing(
    store: FileStore, tmp_path: Path
) -> None:
    store.begin("t", an_id(1)).drop()
    assert [each for each in (tmp_path / "files").rglob("*") if each.is_file()] == []


def test_a_file_is_deleted_once(store: FileStore, tmp_path: Path) -> None:
    name = put(store, 1)
    assert store.delete("t", name)
    assert not store.delete("t", name)
    assert [each for each in (tmp_path / "files").rglob("*") if each.is_file()] == []


def test_a_file_is_there_until_it_expires(store: FileStore) -> None:
    made_ms = wall_us() // 1000
    ids = [new_file_id(f"{made_ms:012x}{number:020x}") for number in range(3)]
    for file_id, seconds in zip(ids, (0, 60, None), strict=True):
        store.begin("t", file_id).keep("in.jsonl", "batch", seconds)

    assert [store.find("t", each) is not None for each in ids] == [False, True, True]
    found, _ = store.page("t", "", "", 9, newest_first=False)
    assert [file.id for file in found] == ids[1:]
    assert store.describe("t", ids[0]) is not None
    assert list(store.over()) == [("t", ids[0])]


def test_what_nobody_will_finish_is_over(store: FileStore) -> None:
    days = 86_400_000
    now_ms = wall_us() // 1000
    old, new = (new_file_id(f"{now_ms - age:012x}{0:020x}") for age in (9 * days, days))
    for file_id in (old, new):
        store.begin("t", file_id)
    assert list(store.over()) == [("t", old)]


def test_files_are_listed_by_pages_from_the_newest_on(store: FileStore) -> None:
    assert store.page("t", "", "", 2, newest_first=True) == ([], False)
    ids = [put(store, number) for number in range(5)]
    put(store, 9, tenant="other")

    found, has_more = store.page("t", "", "", 2, newest_first=True)
    assert ([file.id for file in found], has_more) == ([ids[4], ids[3]], True)
    found, has_more = store.page("t", "batch", ids[3], 3, newest_first=True)
    assert ([file.id for file in found], has_more) == ([ids[2], ids[1], ids[0]], False)
    found, has_more = store.page("t", "batch", ids[3], 3, newest_first=False)
    assert ([file.id for file in found], has_more) == ([ids[4]], False)
    assert store.page("t", "other", "", 2, newest_first=True) == ([], False)


@pytest.mark.parametrize(
    "given", ["", "file-1", "../secret", f"{an_id(1)}/..", an_id(1) + ".json"]
)
def test_what_is_no_id_never_becomes_a_path(given: str) -> None:
    assert not is_file_id(given)


def test_a_batchs_files_have_ids_of_their_own() -> None:
    batch = "batch_" + "0" * 32
    assert is_file_id(of_batch(batch, "output"))
    assert is_file_id(of_batch(batch, "errors"))


def test_a_store_that_fails_is_told(store: FileStore) -> None:
    with pytest.raises(StoreUnavailable, match="could not read"):
        store.open("t", an_id(1))
    with pytest.raises(SetupError, match="HEADRACE_FILES__URL"):
        FileStore("nonsense://x")
