"""Where the threads that wait meet the one loop that decides."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore
from typing import Generic, TypeVar

from headrace.domain import Priority

__all__ = ["Channel", "Inbox"]

Message = TypeVar("Message")


class Channel(IntEnum):
    """Who put a message in, in the order in which the loop takes them.

    Completions come before requests: what ended is known before anything is judged
    late.
    """

    OWNERSHIP = 0
    WRITES = 1
    MODELS = 2
    STATUS = 3
    COMPLETIONS = 4
    REALTIME = 5
    INTERACTIVE = 6
    STANDARD = 7
    BULK = 8

    @classmethod
    def of(cls, priority: Priority) -> Channel:
        return cls(cls.REALTIME + priority)


ANSWERS = Channel.REALTIME
"""Channels below it are not those of requests."""


class Inbox(Generic[Message]):
    """Messages by channel.

    A channel of requests holds at most ``waiting_max`` messages: ``put`` then blocks
    its reader, whose records stay in the log. The others hold answers to what the
    loop asked for and are bounded by that.
    """

    def __init__(self, waiting_max: int = 2) -> None:
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._answers: list[deque[Message]] = [deque() for _ in range(ANSWERS)]
        self._requests: list[deque[Message]] = [deque() for _ in Priority]
        self._room = [BoundedSemaphore(waiting_max) for _ in Priority]
        self._closed = False

    def put(self, channel: Channel, message: Message) -> None:
        """Hand over ``message``; without effect once the inbox is closed."""
        if channel < ANSWERS:
            self._answers[channel].append(message)
        else:
            place = channel - ANSWERS
            while not self._room[place].acquire(timeout=0.1):
                if self._closed:
                    return
            self._requests[place].append(message)
        self._bell.put(None)

    def take(self, timeout_s: float) -> list[Message]:
        """What has come in, or an empty list after the time-out: everything but
        requests, of which each priority gives one message, so that a backlog of one
        delays the others by one message at most."""
        bell = self._bell
        # A request message left behind has had its ring.
        if not any(self._requests):
            try:
                bell.get(timeout_s > 0, timeout_s if timeout_s > 0 else None)
            except Empty:
                return []
        while not bell.empty():
            bell.get_nowait()
        taken: list[Message] = []
        for answers in self._answers:
            while answers:
                taken.append(answers.popleft())
        for requests, room in zip(self._requests, self._room, strict=True):
            if requests:
                taken.append(requests.popleft())
                room.release()
        return taken

    def close(self) -> None:
        """Let go the threads that wait in ``put``."""
        self._closed = True
