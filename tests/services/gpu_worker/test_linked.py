"""What a worker hears by a link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import msgspec
import pytest

from headrace.delivery.worker_events import (
    LinkEnded,
    LinkOpened,
    SyncRead,
    WorkerEvent,
)
from headrace.links import LinkFolder, LinkSender
from headrace.telemetry import get_log
from headrace.testing import ManualClock
from headrace.wire import (
    Opening,
    Sync,
    encode_batch,
    encode_opening,
    encode_sync,
    parse_order,
)
from services.gpu_worker.linked import NOWHERE, Linked
from services.gpu_worker.orders import BatchFetched, OrderIntake
from tests.wire.records import a_request, a_version
from tests.wire.test_batches import STAMP, a_dispatch

NAME = "worker"
FORMER = "ab" * 16
SOON_S = 30

Told = SimpleQueue[WorkerEvent | BatchFetched]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """What the loop is told; nothing here needs a model."""
    queue: Told = SimpleQueue()
    orders = OrderIntake(
        find=lambda _model, _version: None,
        prefetch=lambda _batch: None,
        store_wait_us=1,
        to_mono=lambda log_us: log_us,
        clock=ManualClock(),
    )
    linked = Linked(
        tmp_path / "links",
        NAME,
        put=queue.put,
        orders=orders,
        order_bytes_max=1000,
        log=get_log(),
    )
    linked.start()
    yield queue
    linked.stop()


@pytest.fixture
def lost() -> SimpleQueue[int]:
    return SimpleQueue()


@pytest.fixture
def sender(told: Told, tmp_path: Path, lost: SimpleQueue[int]) -> Iterator[LinkSender]:
    del told  # it listens by now
    made = LinkSender(LinkFolder(tmp_path / "links"), lost.put, ManualClock())
    made.start()
    yield made
    made.stop()


def test_orders_are_told_in_their_order_and_the_end_behind_them(
    sender: LinkSender, told: Told
) -> None:
    link = cast(int, sender.connect(NAME))
    sender.send(link, encode_opening(Opening(0, 3, FORMER, 2, 9)))
    sender.send(link, encode_sync(Sync(0, 3, FORMER, 3, 9)))
    sender.end(link)

    opened, sync, ended = (told.get(timeout=SOON_S) for _ in range(3))

    assert isinstance(opened, LinkOpened)
    number = opened.link
    assert opened == LinkOpened(number, 0, 3, FORMER, 2, 9)
    assert sync == SyncRead(NOWHERE, 0, 3, FORMER, 3, 9, number)
    assert ended == LinkEnded(number)


def test_a_batch_keeps_for_its_end_how_it_was_ordered(
    sender: LinkSender, told: Told
) -> None:
    """No record of the log says it."""
    value = encode_batch(a_dispatch(a_request()), STAMP, a_version())
    link = cast(int, sender.connect(NAME))
    sender.send(link, value)

    taken = told.get(timeout=SOON_S)

    assert isinstance(taken, BatchFetched)
    order = parse_order(memoryview(taken.job.order))
    assert order == msgspec.structs.replace(taken.job.batch, tensors=())


def test_what_is_no_order_ends_its_link(
    sender: LinkSender, told: Told, lost: SimpleQueue[int]
) -> None:
    """Whatever follows, its former has other ideas of it than we have."""
    link = cast(int, sender.connect(NAME))
    sender.send(link, b"\xff\xff\xff")

    assert lost.get(timeout=SOON_S) == link
    assert isinstance(told.get(timeout=SOON_S), LinkEnded)
