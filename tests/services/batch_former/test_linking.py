"""Which workers a former connects to, and whose a lost link was."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from headrace.delivery import Lane
from headrace.delivery.events import LinkFound, LinkLost
from headrace.links import LinkFolder
from headrace.scheduling import BatchFormer
from headrace.telemetry import FormerMetrics, MetricsRegistry
from headrace.testing import ManualClock
from services.batch_former.inbox import Inbox
from services.batch_former.lanes import Lanes, OwnedLane
from services.batch_former.linking import Linking
from services.batch_former.messages import Message

FORMER = "ab" * 16


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[socket.socket]:
    with LinkFolder(tmp_path / "links").bind("worker") as listening:
        yield listening


def a_linking(folder: Path | None) -> Linking:
    metrics = FormerMetrics(MetricsRegistry())
    inbox: Inbox[Message] = Inbox()
    return Linking(folder, FORMER, inbox, ManualClock(), metrics)


@pytest.fixture
def linking(tmp_path: Path, worker: socket.socket) -> Iterator[Linking]:
    del worker  # it listens by now
    made = a_linking(tmp_path / "links")
    made.start()
    yield made
    made.stop()


def owned(lanes: Lanes, term: int) -> OwnedLane:
    core, scheduler = cast(Lane, None), cast(BatchFormer, None)
    lanes.owned[0] = OwnedLane(0, term, core, scheduler, taken_us=0)
    return lanes.owned[0]


def test_a_process_is_connected_to_once(linking: Linking) -> None:
    lane = owned(Lanes(), 1)
    found = linking.heard(lane, 3, 8, "worker")

    assert isinstance(found, LinkFound)
    assert (found.slot, found.incarnation) == (3, 8)
    assert linking.heard(lane, 3, 8, "worker") is None
    assert linking.heard(lane, 3, 7, "worker") is None  # it is older
    assert linking.heard(lane, 3, 9, "worker") is not None


def test_a_process_of_another_machine_has_no_link(linking: Linking) -> None:
    assert linking.heard(owned(Lanes(), 1), 3, 8, "elsewhere") is None


def test_without_a_folder_there_are_no_links() -> None:
    linking = a_linking(None)

    assert linking.heard(owned(Lanes(), 1), 3, 8, "worker") is None
    linking.drop(owned(Lanes(), 1))


def test_a_lost_link_is_told_to_the_ownership_that_had_it(linking: Linking) -> None:
    lanes = Lanes()
    lane = owned(lanes, 1)
    found = linking.heard(lane, 3, 8, "worker")
    assert found is not None

    assert linking.lost(found.link, lanes) == (lane, LinkLost(3, found.link))
    assert linking.lost(found.link, lanes) is None


def test_an_ownership_takes_its_links_with_it(
    linking: Linking, worker: socket.socket
) -> None:
    lanes = Lanes()
    first = owned(lanes, 1)
    found = linking.heard(first, 3, 8, "worker")
    assert found is not None
    connected, _ = worker.accept()

    linking.drop(first)

    with connected:
        assert connected.recv(1) == b""
    again = linking.heard(owned(lanes, 2), 3, 8, "worker")
    assert again is not None
    assert linking.lost(found.link, lanes) is None
