"""Where the threads meet the loop."""

from __future__ import annotations

import threading

from services.batch_former.inbox import Channel, Inbox


def test_requests_come_one_message_a_priority_and_all_else_at_once() -> None:
    inbox: Inbox[str] = Inbox()
    for priority in (Channel.BULK, Channel.REALTIME):
        inbox.put(priority, f"{priority.name} 1")
        inbox.put(priority, f"{priority.name} 2")
    inbox.put(Channel.COMPLETIONS, "done 1")
    inbox.put(Channel.COMPLETIONS, "done 2")
    inbox.put(Channel.OWNERSHIP, "revoked")

    first, second, third = inbox.take(0), inbox.take(0), inbox.take(0)

    assert first == ["revoked", "done 1", "done 2", "REALTIME 1", "BULK 1"]
    assert second == ["REALTIME 2", "BULK 2"]
    assert third == []


def test_a_reader_waits_where_its_messages_are_not_taken() -> None:
    inbox: Inbox[int] = Inbox(waiting_max=2)
    put = threading.Semaphore(0)

    def read() -> None:
        for number in range(4):
            inbox.put(Channel.BULK, number)
            put.release()

    reader = threading.Thread(target=read)
    reader.start()
    assert put.acquire(timeout=30)
    assert put.acquire(timeout=30)
    assert not put.acquire(timeout=0.3)
    assert inbox.take(0) == [0]
    assert put.acquire(timeout=30)
    assert inbox.take(0) == [1]
    reader.join(30)

    assert not reader.is_alive()
    assert [inbox.take(0), inbox.take(0)] == [[2], [3]]


def test_closing_lets_a_waiting_reader_go() -> None:
    inbox: Inbox[int] = Inbox(waiting_max=1)
    inbox.put(Channel.BULK, 1)
    reader = threading.Thread(target=inbox.put, args=(Channel.BULK, 2))
    reader.start()

    inbox.close()
    reader.join(30)

    assert not reader.is_alive()
    assert inbox.take(0) == [1]


def test_taking_ends_with_the_first_message() -> None:
    inbox: Inbox[int] = Inbox()
    writer = threading.Timer(0.05, inbox.put, (Channel.WRITES, 7))
    writer.start()

    assert inbox.take(30) == [7]
    assert inbox.take(0.01) == []
