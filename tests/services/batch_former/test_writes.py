"""Every write ends once, and a dead letter carries its original."""

from __future__ import annotations

import pytest

from headrace.broker import KafkaProducer, ProducerSettings
from headrace.wire import Outgoing
from services.batch_former.inbox import Inbox
from services.batch_former.messages import Ended, Message, WritesEnded
from services.batch_former.producing import Place, Producing, Write
from tests.services.batch_former.pool import Pool, until

pytestmark = pytest.mark.kafka


def ends(inbox: Inbox[Message], count: int) -> list[Ended]:
    """The first so many ends; later ones would be in the list, too."""
    found: list[Ended] = []

    def look() -> list[Ended] | None:
        for message in inbox.take(0.05):
            assert isinstance(message, WritesEnded)
            found.extend(message.ended)
        return found if len(found) >= count else None

    return until(f"{count} writes end", look)


def test_a_write_of_several_records_ends_with_its_last(pool: Pool) -> None:
    inbox: Inbox[Message] = Inbox()
    producing = Producing(KafkaProducer(pool.connection), "answers", inbox)
    producing.start()
    write = Write(0, 1, 7, records=3)
    for partition in range(3):
        producing.write(
            write, Place(pool.topics.replies, partition), Outgoing(None, (), b"x")
        )

    ended = ends(inbox, 1)
    producing.stop(1)

    assert ended == [Ended(0, 1, 7, 0)]
    assert inbox.take(0.2) == []


def test_what_is_held_goes_out_in_its_order_before_what_is_not(pool: Pool) -> None:
    inbox: Inbox[Message] = Inbox()
    producing = Producing(KafkaProducer(pool.connection), "orders", inbox)
    producing.start()
    place = Place(pool.topics.replies, 3)

    def of(number: int) -> tuple[Write, Place, Outgoing]:
        return Write(0, 1, number), place, Outgoing(None, (), b"x")

    producing.hold(*of(1))
    assert inbox.take(0.1) == []
    producing.hold(*of(2))
    producing.write(*of(3))
    producing.hold(*of(4))
    producing.release()
    producing.release()
    ended = ends(inbox, 4)
    producing.stop(1)

    first = ended[0].offset
    assert first is not None
    assert ended == [Ended(0, 1, number, first + number - 1) for number in (1, 2, 3, 4)]


def test_a_record_too_large_ends_its_write_as_not_acked(pool: Pool) -> None:
    inbox: Inbox[Message] = Inbox()
    producing = Producing(KafkaProducer(pool.connection), "answers", inbox)
    producing.start()
    write = Write(0, 1, 7, records=2)
    huge = bytes(pool.bus.batch_bytes_max + 2 * 1024 * 1024)
    place = Place(pool.topics.replies, 0)

    producing.write(write, place, Outgoing(None, (), huge))
    producing.write(write, place, Outgoing(None, (), b"x"))
    ended = ends(inbox, 1)
    producing.stop(1)

    assert ended == [Ended(0, 1, 7, None)]


def test_a_write_that_nobody_takes_ends_at_its_time(pool: Pool) -> None:
    inbox: Inbox[Message] = Inbox()
    settings = ProducerSettings(timeout_ms=600)
    nowhere = pool.connection._replace(bootstrap_servers="127.0.0.1:1")
    producing = Producing(KafkaProducer(nowhere, settings), "orders", inbox)
    producing.start()

    write = Write(3, 4, 5)
    producing.write(write, Place("t", 0), Outgoing(None, (), b"x"))
    ended = ends(inbox, 1)
    producing.stop(0.1)

    assert ended == [Ended(3, 4, 5, None)]
