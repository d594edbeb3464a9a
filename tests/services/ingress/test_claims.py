"""Payloads beside the log, as an ingress writes and reads them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from uuid import uuid4

import fsspec
import msgspec
import pytest

from headrace.clock import SystemClock
from headrace.domain import Datatype, PayloadRef, ServedVersion, Tensor
from headrace.errors import StoreUnavailable
from headrace.lifecycle import Health, Pulse
from headrace.payloads import PayloadStore
from headrace.testing import ManualClock
from headrace.wire.payloads import object_name, read_dataref
from services.ingress.store_watch import AWAITED, StoreWatch
from tests.services.ingress.models import a_version
from tests.services.ingress.world import (
    STORED_BYTES_MAX,
    HeldExchange,
    World,
    a_result,
)

ROWS = 8
RAW = struct.pack("<32f", *range(32))
JSON = (
    b'{"inputs":[{"name":"X","shape":[8,4],"datatype":"FP32",'
    b'"parameters":{"binary_data_size":128}}],'
    b'"parameters":{"binary_data_output":true}}'
)
BINARY = (
    (b"inference-header-content-length", b"%d" % len(JSON)),
    (b"content-length", b"%d" % (len(JSON) + len(RAW))),
)

Fields = tuple[tuple[bytes, bytes], ...]
KEYED: Fields = ((b"idempotency-key", b"k"),)


@pytest.fixture
def store() -> Iterator[PayloadStore]:
    name = uuid4().hex
    made = PayloadStore(f"memory://{name}")
    made.probe()
    yield made
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def a_world(store: PayloadStore | None) -> World:
    return World(store=store, payload_bytes_max=64)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what other threads bring about
            await asyncio.sleep(0.001)


async def test_a_large_request_is_written_once_and_its_record_names_it(
    store: PayloadStore,
) -> None:
    world = a_world(store)
    exchange = world.ask(*BINARY, body=JSON + RAW)
    assert world.records() == [], "not before its object is there"
    await eventually(lambda: world.producer.poll(0) or world.records())

    (record,) = world.records()
    ref = read_dataref(dict(record.headers))
    assert ref is not None
    assert ref.name == object_name(world.clock.now_us(), "default", exchange.request_id)
    assert bytes(store.read(ref)) == RAW
    assert RAW not in (record.value or b"")
    assert exchange.status is None


async def test_a_large_answer_is_read_from_the_store(store: PayloadStore) -> None:
    world = a_world(store)
    exchange = world.ask(*BINARY, body=JSON + RAW)
    await eventually(world.records)
    answer_with(world, exchange, store.write("h/t/answer", [RAW]))
    await eventually(lambda: exchange.status)
    assert exchange.status == 200
    assert exchange.body.endswith(RAW)


def answer_with(world: World, exchange: HeldExchange, ref: PayloadRef) -> None:
    output = Tensor("Y", Datatype.FP32, (ROWS, 4), b"")
    world.reply(a_result(exchange, outputs=(output,), rows=ROWS, payload=ref))


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        ({"name": "h/t/none"}, 500, "payload_lost"),
        ({"sha256": "0" * 64}, 500, "payload_lost"),
        ({"sizes": (64, 64)}, 500, "payload_lost"),
    ],
)
async def test_an_answer_whose_object_is_not_there_is_an_error(
    store: PayloadStore, changed: dict[str, object], status: int, reason: str
) -> None:
    world = a_world(store)
    exchange = world.ask(*BINARY, body=JSON + RAW)
    await eventually(world.records)
    ref = store.write("h/t/answer", [RAW])
    answer_with(world, exchange, ref._replace(**changed))
    await eventually(lambda: exchange.status)
    assert (exchange.status, exchange.reason) == (status, reason)


async def test_an_answer_too_large_for_json_says_how_to_ask(
    store: PayloadStore,
) -> None:
    world = a_world(store)
    text = JSON.replace(b"true", b"false")
    fields = (
        (b"inference-header-content-length", b"%d" % len(text)),
        (b"content-length", b"%d" % (len(text) + len(RAW))),
    )
    exchange = world.ask(*fields, body=text + RAW)
    await eventually(world.records)
    answer_with(world, exchange, store.write("h/t/answer", [RAW]))
    assert (exchange.status, exchange.reason) == (413, "too_large")
    assert b"ask for 'Y' with binary_data" in exchange.body


async def test_what_the_store_has_no_room_for_is_413(store: PayloadStore) -> None:
    for world, told in (
        (a_world(store), f"at most {STORED_BYTES_MAX} are allowed"),
        (a_world(None), "at most 64 are allowed"),
    ):
        raw = bytes(STORED_BYTES_MAX + 16)
        text = JSON.replace(b"[8,4]", b"[257,4]").replace(b"128", b"%d" % len(raw))
        fields = (
            (b"inference-header-content-length", b"%d" % len(text)),
            (b"content-length", b"%d" % (len(text) + len(raw))),
        )
        world.announce(wide := wider())
        exchange = world.ask(*fields, body=text + raw, model=wide.model)
        assert (exchange.status, exchange.reason) == (413, "too_large")
        assert told in exchange.body.decode()
        assert len(world.handler.ends.waiters) == 0


def wider() -> ServedVersion:
    return msgspec.structs.replace(a_version(model="wide"), max_batch=1000)


class Hanging(PayloadStore):
    """Answers when it is let, or with an error."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("memory://hanging")
        self.going = Event()
        self.fails = fails

    def write(self, name: str, _pieces: object) -> PayloadRef:
        if self.fails:
            raise StoreUnavailable("it is away")
        assert self.going.wait(30)
        return PayloadRef(name, "0" * 64, (128,))

    def probe(self) -> None:
        if self.fails:
            raise StoreUnavailable("it is away")


@pytest.mark.parametrize("more", [(), KEYED])
async def test_a_store_that_fails_is_503_with_its_reason(more: Fields) -> None:
    world = a_world(Hanging(fails=True))
    exchange = world.ask(*BINARY, *more, body=JSON + RAW)
    await eventually(lambda: exchange.status)
    assert (exchange.status, exchange.reason) == (503, "store_unavailable")
    assert b"retry-after" in exchange.fields
    assert b"it is away" in exchange.body


@pytest.mark.parametrize("more", [(), KEYED])
async def test_a_store_that_hangs_holds_up_nobody_and_ends_at_the_deadline(
    more: Fields,
) -> None:
    hanging = Hanging()
    world = a_world(hanging)
    large = world.ask(*BINARY, *more, body=JSON + RAW)
    left = world.ask(*BINARY, body=JSON + RAW)
    world.handler.client_left(left)
    small = world.ask()
    assert len(world.records()) == 1
    world.reply(a_result(small))
    assert small.status == 200
    world.wind(5_100_000)
    assert (large.status, large.reason) == (503, "store_unavailable")
    assert b"did not take the request within the limit of 5000 ms" in large.body

    hanging.going.set()
    late = world.ask(*BINARY, body=JSON + RAW)
    await eventually(lambda: world.producer.poll(0) or len(world.records()) == 2)
    assert late.status is None, "those who left meanwhile have no record"


def test_readiness_tells_that_the_store_is_away_and_of_its_return() -> None:
    clock = SystemClock()
    health = Health(Pulse(clock), {})
    store = Hanging(fails=True)
    watch = StoreWatch(store, health, keep_hours=1, now_us=lambda: None, look_s=0.005)
    watch.start()
    try:
        wait_for(lambda: health.why_not_ready() == "it is away")
        assert health.awaits(AWAITED)
        store.fails = False
        wait_for(lambda: health.why_not_ready() is None)
    finally:
        watch.stop()


def test_what_is_over_is_deleted_by_the_watch(tmp_path: Path) -> None:
    store = PayloadStore(f"file://{tmp_path}")
    clock = ManualClock(1_700_000_000_000_000)
    store.write(object_name(clock.now_us(), "t", "old"), [b"x"])
    clock.advance(3 * 3_600_000_000)
    store.write(object_name(clock.now_us(), "t", "new"), [b"x"])
    watch = StoreWatch(
        store,
        Health(Pulse(clock), {}),
        keep_hours=2,
        now_us=clock.now_us,
        look_s=0.005,
    )
    watch.start()
    try:
        wait_for(
            lambda: (
                {each.name for each in tmp_path.iterdir()} == {"20231115T01", "probe"}
            )
        )
    finally:
        watch.stop()


def wait_for(holds: Callable[[], bool]) -> None:
    watching = Event()
    for _ in range(6000):
        if holds():
            return
        watching.wait(0.005)
    raise AssertionError("it did not come to pass in half a minute")
