"""Who waits to take a dead process' place: when it begins, and when it ends."""

from __future__ import annotations

import signal
import sys
import threading

from headrace.embedded import TiedProcess
from headrace.errors import SetupError
from services.ctl.spares import Spares
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
        self._one_more = threading.Semaphore(0)
        self.spares = Spares(self._start, after_s=0)

    def prepare(self, child: Child = FORMER) -> Process:
        self.spares.prepare(child)
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


def test_a_spare_that_has_died_is_not_taken() -> None:
    nursery = Nursery()
    process = nursery.prepare()
    process.kill()
    process.wait()

    assert nursery.spares.take(FORMER) is None


def test_where_no_process_can_be_started_there_is_no_spare() -> None:
    tried = threading.Event()

    def start(_child: Child, _line: int) -> Process:
        tried.set()
        raise SetupError("too many processes")

    spares = Spares(start, after_s=0)
    spares.prepare(FORMER)

    assert tried.wait(PATIENCE_S)
    assert spares.take(FORMER) is None
