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


class Inbox(Generic[Message]):
    """Messages by channel.

    A channel of requests holds at most ``waiting_max`` messages: ``put`` then blocks
    its reader, whose records stay in the log. The others hold answers to what the
    loop asked for and are bounded by that.
    """

    def __init__(self, waiting_max: int = 2) -> None:
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._waiting: tuple[deque[Message], ...] = tuple(deque() for _ in Channel)
        self._room = {
            channel: BoundedSemaphore(waiting_max)
            for channel in Channel
            if channel >= Channel.REALTIME
        }
        self._closed = False

    def put(self, channel: Channel, message: Message) -> None:
        """Hand over ``message``; without effect once the inbox is closed."""
        room = self._room.get(channel)
        while room is not None and not room.acquire(timeout=0.1):
            if self._closed:
                return
        self._waiting[channel].append(message)
        self._bell.put(None)

    def take(self, timeout_s: float) -> list[Message]:
        """What has come in, or an empty list after the time-out: everything but
        requests, of which each priority gives one message, so that a backlog of one
        delays the others by one message at most."""
        try:
            if not any(self._waiting):
                self._bell.get(timeout_s > 0, timeout_s if timeout_s > 0 else None)
            while not self._bell.empty():
                self._bell.get_nowait()
        except Empty:
            pass
        taken: list[Message] = []
        for channel, waiting in enumerate(self._waiting):
            room = self._room.get(Channel(channel))
            if room is None:
                taken.extend(waiting.popleft() for _ in range(len(waiting)))
            elif waiting:
                taken.append(waiting.popleft())
                room.release()
        return taken

    def close(self) -> None:
        """Let go the threads that wait in ``put``."""
        self._closed = True
