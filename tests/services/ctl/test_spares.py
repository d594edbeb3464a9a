"""Who waits to take a dead process' place: when it begins, and when it ends."""

from __future__ import annotations

import signal
import sys
import threading
from queue import SimpleQueue

from headrace.embedded import TiedProcess
from headrace.errors import SetupError
from services.ctl.spares import IN_VAIN_MAX, Spares
from services.ctl.supervision import Child, Service

FORMER = Child(Service.BATCH_FORMER, 0)
OTHER = Child(Service.BATCH_FORMER, 1)
PATIENCE_S = 20.0

BEGUN, CLOSED = 7, 0
WAITS = f"import os, sys; sys.exit({BEGUN} if os.read(int(sys.argv[1]), 1) else 0)"


class Process:
    """What ends as the byte or the end of its descriptor says."""

    last_words = ""

    def __init__(self, line: int) -> None:
        args = (sys.executable, "-c", WAITS, str(line))
        self._process = TiedProcess(args, output=2, pass_fds=(line,))
        self.pid = self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    def wait(self) -> int:
        status = self._process.wait(PATIENCE_S)
        assert status is not None
        return status

    def terminate(self) -> None:
        self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        self._process.send(signal.SIGKILL)


class Nursery:
    """Spares of real processes, without their delay."""

    def __init__(self) -> None:
        self.started: list[Process] = []
        self.said: SimpleQueue[str] = SimpleQueue()
        self._one_more = threading.Semaphore(0)
        self.spares = Spares(self._start, self.said.put, after_s=0)

    def prepare(self, child: Child = FORMER) -> Process:
        self.spares.prepare(child)
        return self.awaited()

    def hears(self) -> str:
        return self.said.get(timeout=PATIENCE_S)

    def awaited(self) -> Process:
        """The next spare, which is kept or dropped already."""
        assert self._one_more.acquire(timeout=PATIENCE_S)
        # It is kept, or dropped, once its start has returned.
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()
        return self.started[-1]

    def _start(self, _child: Child, line: int) -> Process:
        self.started.append(Process(line))
        self._one_more.release()
        return self.started[-1]


def test_a_spare_begins_when_it_is_taken_and_only_once() -> None:
    nursery = Nursery()
    process = nursery.prepare()

    assert nursery.spares.take(OTHER) is None
    assert not process.has_ended
    assert nursery.spares.take(FORMER) is process
    assert process.wait() == BEGUN
    assert nursery.spares.take(FORMER) is None


def test_the_spare_of_one_that_is_not_started_again_ends() -> None:
    nursery = Nursery()
    process = nursery.prepare()

    nursery.spares.retire(FORMER)

    assert process.wait() == CLOSED
    assert nursery.spares.take(FORMER) is None
    nursery.spares.prepare(FORMER)
    assert nursery.started == [process]


def test_there_is_one_spare_for_each() -> None:
    nursery = Nursery()
    first = nursery.prepare()
    second = nursery.prepare()

    assert second.wait() == CLOSED
    assert nursery.spares.take(FORMER) is first


def test_a_spare_that_is_killed_is_replaced_and_told() -> None:
    nursery = Nursery()
    first = nursery.prepare()
    first.kill()

    assert nursery.hears() == (
        "the spare of batch-former.0 ended with signal:SIGKILL; another starts in 0.0 s"
    )
    second = nursery.awaited()
    assert (
        nursery.hears() == f"batch-former.0 has a spare again, as process {second.pid}"
    )
    assert nursery.spares.take(FORMER) is second
    assert second.wait() == BEGUN


def test_spares_that_always_end_are_not_replaced_for_ever() -> None:
    nursery = Nursery()
    nursery.prepare().kill()
    for _ in range(IN_VAIN_MAX - 1):
        assert "another starts" in nursery.hears()
        process = nursery.awaited()
        assert "has a spare again" in nursery.hears()
        process.kill()

    assert "5 times in a row; there is none" in nursery.hears()
    assert nursery.spares.take(FORMER) is None
    # A new start of the process is a new beginning.
    process = nursery.prepare()
    assert nursery.spares.take(FORMER) is process


def test_a_spare_that_died_just_now_is_not_taken() -> None:
    """Nobody has noticed so far."""
    ended = threading.Event()

    class Dying(Process):
        def wait(self) -> int:
            status = super().wait()
            assert ended.wait(PATIENCE_S)
            return status

    started: SimpleQueue[Dying] = SimpleQueue()

    def start(_child: Child, line: int) -> Dying:
        started.put(process := Dying(line))
        return process

    said: SimpleQueue[str] = SimpleQueue()
    spares = Spares(start, said.put, after_s=0)
    spares.prepare(FORMER)
    process = started.get(timeout=PATIENCE_S)
    process.kill()
    Process.wait(process)

    assert spares.take(FORMER) is None
    ended.set()
    assert said.empty()


def test_where_no_process_can_be_started_there_is_no_spare() -> None:
    said: SimpleQueue[str] = SimpleQueue()

    def start(_child: Child, _line: int) -> Process:
        raise SetupError("too many processes")

    spares = Spares(start, said.put, after_s=0)
    spares.prepare(FORMER)

    told = [said.get(timeout=PATIENCE_S) for _ in range(IN_VAIN_MAX)]
    assert told[0] == (
        "the spare of batch-former.0 could not be started (too many processes); "
        "another starts in 0.0 s"
    )
    assert "5 times in a row" in told[-1]
    assert spares.take(FORMER) is None
