"""Links of the simulation: streams from formers to workers of the same machine.

What was handed to a stream is read in its order, also after its sender has died or
closed it, however late: bytes that lie in a kernel do not know that anybody has given
them up. It is lost with its reader.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from headrace.delivery.decisions import OpenLink
from headrace.delivery.events import LinkFound, LinkLost
from headrace.delivery.worker_events import LinkEnded
from tests.delivery.builders import MS, SECOND
from tests.delivery.records import BatchRecord, OpeningRecord, SyncRecord
from tests.delivery.worker_process import WorkerProcess

if TYPE_CHECKING:
    from tests.delivery.former_process import FormerProcess
    from tests.delivery.process import Process

__all__ = ["Stream", "Streams"]

Order = BatchRecord | OpeningRecord | SyncRecord


class Stream:
    """One link, to one process of a slot."""

    def __init__(self, number: int, former: FormerProcess, worker: WorkerProcess):
        self.number = number
        self._world = former.world
        self._former = former
        self._worker = worker
        self._inside: deque[Order | None] = deque()
        self._arrives_us = 0
        self._stands_until_us = 0
        self._is_closed = False
        """By its former, or its former knows that it has ended."""

    def send(self, order: Order | None) -> None:
        """None: its end."""
        world = self._world
        self._inside.append(order)
        self._arrives_us = max(world.now_us + world.latency_us(), self._arrives_us + 1)
        world.at(self._arrives_us, partial(self._worker.call, self._arrive))

    def close(self) -> None:
        """The former's end."""
        if not self._is_closed:
            self._is_closed = True
            self.send(None)

    def stall(self) -> None:
        """Nobody reads it for a while, and before that is over, as a rule, the former
        gives it up, with what lies inside."""
        random = self._world.random
        self._stands_until_us = self._world.now_us + random.randrange(SECOND)
        self._former.after(random.randrange(800 * MS), self._give_up)

    def _give_up(self) -> None:
        if not self._is_closed:
            self.close()
            self._tell_lost()

    def ended(self) -> None:
        """The worker has closed it, or is dead."""
        self._inside.clear()
        if not self._is_closed:
            self._is_closed = True
            self._former.after(self._world.latency_us(), self._tell_lost)

    def _tell_lost(self) -> None:
        self._former.streams.forget(self)
        self._former.tell(LinkLost(self._worker.slot, self.number))

    def _arrive(self) -> None:
        world = self._world
        if world.now_us < self._stands_until_us:
            world.at(self._stands_until_us, partial(self._worker.call, self._arrive))
            return
        if not self._inside:
            return  # closed by the worker
        order = self._inside.popleft()
        if order is None:
            self._worker.tell(LinkEnded(self.number))
        else:
            self._worker.take_in(order, link=self)


class Streams:
    """A former's, one for each worker process that it has heard."""

    def __init__(self, former: FormerProcess) -> None:
        self._former = former
        self._streams: dict[int, Stream] = {}
        self._tried: set[WorkerProcess] = set()

    def heard(self, worker: Process) -> None:
        """Connect to a worker, if that was not tried before."""
        former = self._former
        if not isinstance(worker, WorkerProcess) or worker in self._tried:
            return
        incarnation = worker.core.incarnation
        if former.lane is None or incarnation is None:
            return
        self._tried.add(worker)
        if worker.is_dead or not former.world.is_fused:
            return
        stream = Stream(former.world.next_id(), former, worker)
        self._streams[stream.number] = stream
        worker.streams.append(stream)
        former.tell(LinkFound(worker.slot, incarnation, stream.number))

    def open(self, decision: OpenLink) -> None:
        opening = OpeningRecord(
            decision.epoch, self._former.uuid, decision.k, decision.incarnation
        )
        self.send(decision.link, opening)

    def send(self, link: int, order: Order) -> None:
        stream = self._streams.get(link)
        if stream is not None:  # else its loss is on its way to the lane
            stream.send(order)

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.number, None)

    def stall(self) -> None:
        for stream in self._streams.values():
            stream.stall()

    def close(self) -> None:
        """The lane is given up, or the process has died."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._tried.clear()
