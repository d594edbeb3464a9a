"""A worker's core on a bench: told by hand in virtual time."""

from collections.abc import Iterable
from typing import TypeVar

from headrace.delivery import WorkerCore, WorkerLimits
from headrace.delivery.worker_decisions import (
    WorkerDecision,
    WriteJoin,
)
from headrace.delivery.worker_events import (
    ALL_OK,
    BatchRead,
    Outcome,
    RepliesEnded,
    RunEnded,
    Started,
    SyncRead,
    Ticked,
    WorkerEvent,
    WriteEnded,
)
from headrace.domain import MemberStatus
from tests.delivery.builders import MS, SECOND
from tests.delivery.desk import found

__all__ = ["JOIN", "LANE", "RETRY", "Bench"]

D = TypeVar("D")
LANE = 3
JOIN = 40
RETRY = Outcome(MemberStatus.RETRY, "model_error", "it raised")


class Bench:
    """A worker of lane ``LANE`` whose join, when ``joined``, was acked at ``JOIN``."""

    def __init__(self, *, joined: bool = True, cap: int = 2) -> None:
        self.now_us = 10 * SECOND
        self.limits = WorkerLimits(cap=cap)
        self.core = WorkerCore(lane=LANE, limits=self.limits)
        self.said: list[WorkerDecision] = []
        self._offset = 100
        if joined:
            (join,) = found(self.tell(Started(100)), WriteJoin)
            self.tell(WriteEnded(join.write, JOIN))

    def tell(self, event: WorkerEvent) -> list[WorkerDecision]:
        said = self.core.handle(event, self.now_us)
        self.said += said
        return said

    def let_pass(self, us: int) -> list[WorkerDecision]:
        """Ticks whenever the core wants one."""
        until_us = self.now_us + us
        said: list[WorkerDecision] = []
        while True:
            wakeup_us = self.core.wakeup_at_us()
            if wakeup_us is None or wakeup_us > until_us:
                self.now_us = until_us
                return said
            self.now_us = max(self.now_us, wakeup_us)
            ticked = self.tell(Ticked())
            assert ticked, "a tick that did nothing"
            said += ticked

    def sync(
        self,
        *,
        epoch: int = 1,
        former: str = "f",
        k: int = 1,
        lane: int = LANE,
        incarnation: int | None = None,
        link: int | None = None,
    ) -> list[WorkerDecision]:
        """From the partition, or by ``link``."""
        offset = self._next(link)
        return self.tell(SyncRead(offset, lane, epoch, former, k, incarnation, link))

    def _next(self, link: int | None) -> int:
        if link is not None:
            return -1
        self._offset += 1
        return self._offset

    def batch(
        self,
        name: str,
        *,
        epoch: int = 1,
        former: str = "f",
        incarnation: int = JOIN,
        lane: int = LANE,
        members: int = 1,
        latest_start_us: int | None = None,
        bulk: bool = False,
        predicted_us: int = MS,
        store_wait_us: int = 0,
        again: bool = False,
        link: int | None = None,
    ) -> list[WorkerDecision]:
        """From the partition, or by ``link``."""
        read = BatchRead(
            offset=self._offset if again else self._next(link),
            batch=name,
            lane=lane,
            epoch=epoch,
            former=former,
            incarnation=incarnation,
            members=members,
            model="m",
            version="1",
            padded_rows=members,
            latest_start_us=latest_start_us,
            bulk=bulk,
            predicted_us=predicted_us,
            store_wait_us=store_wait_us,
            link=link,
        )
        return self.tell(read)

    def ran(
        self, name: str, outcomes: tuple[Outcome, ...] = ALL_OK, run_us: int = MS
    ) -> list[WorkerDecision]:
        return self.tell(RunEnded(name, run_us, outcomes))

    def replied(
        self, name: str, members: Iterable[int] = (0,), *, acked: bool = True
    ) -> list[WorkerDecision]:
        return self.tell(RepliesEnded(name, tuple(members), acked))

    def said_of(self, kind: type[D]) -> list[D]:
        return [each for each in self.said if isinstance(each, kind)]

    def acked(self, decisions: Iterable[WorkerDecision]) -> list[WorkerDecision]:
        """The first numbered write among the decisions is acked."""
        write = next(d.write for d in decisions if hasattr(d, "write"))
        return self.tell(WriteEnded(write, 500))
