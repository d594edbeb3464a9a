"""Objects of the payload store, in memory and in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from time import sleep
from uuid import uuid4

import fsspec
import pytest

from headrace.domain import PayloadRef
from headrace.errors import HeadraceError, PayloadLost, SetupError, StoreUnavailable
from headrace.payloads import PayloadStore, StoreThreads
from headrace.payloads.threads import THREADS, THREADS_MAX
from headrace.wire.payloads import object_name

HOUR_US = 3_600_000_000


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/store"
    else:
        name = uuid4().hex
        yield f"memory://{name}/store"
        fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def test_what_is_written_is_read_back_and_referred_to_by_content(url: str) -> None:
    store = PayloadStore(url)
    store.probe()
    ref = store.write("20260101T00/acme/one", [b"abc", memoryview(b"de"), b""])

    assert ref == PayloadRef(
        "20260101T00/acme/one", sha256(b"abcde").hexdigest(), (3, 2, 0)
    )
    assert bytes(PayloadStore(url).read(ref)) == b"abcde"


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "20260101T00/acme/other"},
        {"sha256": "0" * 64},
        {"sizes": (3, 1)},
        {"sizes": (3, 3)},
    ],
)
def test_what_is_not_what_was_referred_to_is_lost(
    url: str, changed: dict[str, object]
) -> None:
    store = PayloadStore(url)
    store.probe()
    ref = store.write("20260101T00/acme/one", [b"abc", b"de"])
    with pytest.raises(PayloadLost, match="the object 20260101T00/acme/o"):
        store.read(ref._replace(**changed))


def test_objects_are_deleted_by_the_hour_in_which_they_were_made(url: str) -> None:
    store = PayloadStore(url)
    made_us = 1_700_000_000_000_000
    refs = [
        store.write(object_name(made_us + hour * HOUR_US, "acme", "x"), [b"x"])
        for hour in range(3)
    ]
    store.probe()
    now_us = made_us + 12 * HOUR_US

    assert store.sweep(now_us, keep_hours=11) == 1
    assert store.sweep(now_us, keep_hours=11) == 0
    assert [is_there(store, ref) for ref in refs] == [False, True, True]
    assert PayloadStore(f"{url}/none").sweep(now_us, 1) == 0


def is_there(store: PayloadStore, ref: PayloadRef) -> bool:
    try:
        store.read(ref)
    except PayloadLost:
        return False
    return True


def test_a_store_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = PayloadStore(f"file://{tmp_path}/file/store")
    with pytest.raises(StoreUnavailable, match="could not write probe"):
        store.probe()
    with pytest.raises(StoreUnavailable, match="could not write a/b"):
        store.write("a/b", [b"x"])
    with pytest.raises(SetupError, match="PAYLOAD_STORE=nowhere://x"):
        PayloadStore("nowhere://x")


def test_calls_run_on_threads_and_beyond_the_limit_none_is_taken() -> None:
    threads = StoreThreads(waiting_max=1)
    going, done = Event(), Event()
    ended: list[tuple[int | None, HeadraceError | None]] = []

    def then(result: int | None, error: HeadraceError | None) -> None:
        ended.append((result, error))
        if len(ended) == THREADS + 1:
            done.set()

    def fail() -> int:
        going.wait()
        raise PayloadLost("gone")

    def give() -> int:
        going.wait()
        return 1

    refused = 0
    for number in range(THREADS + 1):
        # A thread may not have taken the last one yet.
        while True:
            try:
                threads.submit(fail if number == 0 else give, then)
            except StoreUnavailable:
                refused += 1
            else:
                break
    with pytest.raises(StoreUnavailable, match="1 calls wait"):
        threads.submit(give, then)
    going.set()
    assert done.wait(30)
    results = sorted(str(error or result) for result, error in ended)
    assert results == ["1"] * THREADS + ["gone"]


def test_calls_that_hang_keep_no_other_from_the_store_until_very_many_do() -> None:
    threads = StoreThreads(timeout_s=0.001)
    going, done = Event(), Event()
    began: SimpleQueue[None] = SimpleQueue()

    def hang() -> None:
        began.put(None)
        going.wait()

    def ignore(_nothing: None, _error: HeadraceError | None) -> None:
        pass

    for _ in range(THREADS_MAX):
        threads.submit(hang, ignore)
        began.get(timeout=30)  # it has a thread, though all others hang
        sleep(0.002)
    with pytest.raises(StoreUnavailable, match="16 calls hang in the payload store"):
        threads.submit(hang, ignore)

    going.set()
    while not done.is_set():
        with suppress(StoreUnavailable):  # until one has returned
            threads.submit(lambda: 1, lambda _one, _error: done.set())
            assert done.wait(30)
