"""Two ends in one process, over real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pytest

from headrace.errors import SetupError
from headrace.links import LinkFolder, LinkListener, LinkSender
from headrace.links.listening import LINKS_MAX
from headrace.links.sending import BUFFER_BYTES, STALLED_US, WAITING_BYTES_MAX
from headrace.testing import ManualClock

NAME = "worker"
BYTES_MAX = 8 * BUFFER_BYTES
SOON_S = 30


class Reader(NamedTuple):
    """What a listener told: ``(link, value)``, and None for a link's end."""

    listener: LinkListener
    told: SimpleQueue[tuple[int, bytes | None]]

    def next(self) -> tuple[int, bytes | None]:
        return self.told.get(timeout=SOON_S)


@pytest.fixture
def folder(tmp_path: Path) -> LinkFolder:
    return LinkFolder(tmp_path / "links")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lost() -> SimpleQueue[int]:
    return SimpleQueue()


@pytest.fixture
def sender(
    folder: LinkFolder, clock: ManualClock, lost: SimpleQueue[int]
) -> Iterator[LinkSender]:
    made = LinkSender(folder, lost.put, clock)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def reader(folder: LinkFolder) -> Iterator[Reader]:
    told: SimpleQueue[tuple[int, bytes | None]] = SimpleQueue()
    listener = LinkListener(
        folder,
        NAME,
        take=lambda link, value: told.put((link, bytes(value))),
        ended=lambda link: told.put((link, None)),
        bytes_max=BYTES_MAX,
    )
    listener.start()
    yield Reader(listener, told)
    listener.stop()


@pytest.fixture
def deaf(folder: LinkFolder) -> Iterator[socket.socket]:
    """Listens, and never reads."""
    with folder.bind(NAME) as listening:
        yield listening


def connected(sender: LinkSender) -> int:
    link = sender.connect(NAME)
    assert link is not None
    return link


def test_values_come_whole_and_in_order_whatever_their_size(
    sender: LinkSender, reader: Reader
) -> None:
    link = connected(sender)
    sizes = [0, 1, BUFFER_BYTES, 3 * BUFFER_BYTES, 17, BYTES_MAX, 5]
    values = [os.urandom(size) for size in sizes]

    for value in values:
        sender.send(link, value)

    assert [reader.next()[1] for _ in values] == values


def test_links_are_told_apart(sender: LinkSender, reader: Reader) -> None:
    first, second = connected(sender), connected(sender)
    sender.send(first, b"a")
    one, _ = reader.next()
    sender.send(second, b"b")
    other, value = reader.next()

    assert (one != other, value) == (True, b"b")


def test_nobody_listens(sender: LinkSender) -> None:
    assert sender.connect("another host's") is None


def test_what_was_sent_is_read_after_its_sender_has_ended_the_link(
    sender: LinkSender, reader: Reader, lost: SimpleQueue[int]
) -> None:
    link = connected(sender)
    sender.send(link, b"last words")
    sender.end(link)

    told = [reader.next()[1], reader.next()[1]]

    assert told == [b"last words", None]
    assert lost.empty()


def test_a_link_that_its_reader_ends_is_lost_once(
    sender: LinkSender, reader: Reader, lost: SimpleQueue[int]
) -> None:
    link = connected(sender)
    sender.send(link, b"a")
    number, _ = reader.next()
    reader.listener.end(number)

    assert lost.get(timeout=SOON_S) == link
    assert reader.next() == (number, None)
    sender.send(link, b"b")
    sender.end(link)
    assert lost.empty()


@pytest.mark.usefixtures("deaf")
def test_sending_never_waits_and_a_reader_that_stands_still_loses_the_link(
    sender: LinkSender, clock: ManualClock, lost: SimpleQueue[int]
) -> None:
    link = connected(sender)
    for _ in range(4):
        sender.send(link, bytes(BUFFER_BYTES))
    assert lost.empty()

    clock.advance(STALLED_US + 1)

    assert lost.get(timeout=SOON_S) == link


@pytest.mark.usefixtures("deaf")
def test_a_link_holds_so_much_and_no_more(
    sender: LinkSender, lost: SimpleQueue[int]
) -> None:
    link = connected(sender)
    sender.send(link, bytes(WAITING_BYTES_MAX))
    assert lost.empty()

    sender.send(link, bytes(3 * BUFFER_BYTES))

    assert lost.get(timeout=SOON_S) == link


def test_a_value_that_is_too_large_ends_its_link(
    sender: LinkSender, reader: Reader, lost: SimpleQueue[int]
) -> None:
    link = connected(sender)
    sender.send(link, bytes(BYTES_MAX + 1))

    assert reader.next()[1] is None
    assert lost.get(timeout=SOON_S) == link


def test_one_link_too_many_ends_the_oldest(
    sender: LinkSender, reader: Reader, lost: SimpleQueue[int]
) -> None:
    links = []
    for _ in range(LINKS_MAX):
        links.append(connected(sender))
        sender.send(links[-1], b"a")
        assert reader.next()[1] == b"a"

    connected(sender)

    assert lost.get(timeout=SOON_S) == links[0]


# -- the folder


def test_a_folder_that_others_reach_into_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    with pytest.raises(SetupError, match="not for this user alone"):
        LinkFolder(tmp_path)


def test_a_folder_may_lie_deeper_than_a_sockets_path_is_long(tmp_path: Path) -> None:
    folder = LinkFolder(tmp_path / ("deep" * 50) / "links")

    with folder.bind(NAME):
        found = folder.connect(NAME)
        assert found is not None
        found.close()


def test_what_killed_processes_left_is_removed(
    tmp_path: Path, folder: LinkFolder
) -> None:
    left = tmp_path / "links" / "killed"
    folder.bind(left.name).close()
    os.utime(left, (0, 0))

    with folder.bind("other"), folder.bind(NAME):
        os.utime(tmp_path / "links" / "other", (0, 0))
        folder.bind("third").close()

    assert not left.exists()
    assert (tmp_path / "links" / "other").exists()
