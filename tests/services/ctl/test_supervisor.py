from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

from headrace.clock import SystemClock
from headrace.embedded import TiedProcess
from headrace.errors import SetupError
from services.ctl.supervision import Child, RestartPolicy, Service, Supervision
from services.ctl.supervisor import Restarted, Supervisor

WORKER = Child(Service.GPU_WORKER, 0)
INGRESS = Child(Service.INGRESS, 0)
PATIENCE_S = 20.0

LIVES = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"

POLICY = RestartPolicy(
    delay_first_us=1000,
    patience_us=((Service.INGRESS, 300_000), (Service.GPU_WORKER, 300_000)),
)


class Process:
    """What a service is to its supervisor, running a line of Python."""

    def __init__(self, code: str) -> None:
        self._process = TiedProcess((sys.executable, "-c", code), output=2)
        self.last_words = "no such device"
        self.pid = self._process.pid
        self.asks = threading.Event()
        """Set: it asks for its successor."""
        self._ended = threading.Event()

    def wait(self) -> int:
        status = self._process.wait()
        assert status is not None
        self._ended.set()
        self.asks.set()
        return status

    def asks_for_successor(self) -> bool:
        self.asks.wait()
        return not self._ended.is_set()

    def terminate(self) -> None:
        self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        self._process.send(signal.SIGKILL)


class Platform:
    """A supervisor of real processes, run by a thread."""

    def __init__(
        self, codes: dict[Child, str], may_restart: threading.Event | None = None
    ) -> None:
        self.processes: list[Process] = []
        self.born: SimpleQueue[tuple[Child, str, int]] = SimpleQueue()
        self.restarts: SimpleQueue[Restarted] = SimpleQueue()
        self.said: list[str] = []
        self.ended: list[Child] = []
        self.heard: SimpleQueue[str] = SimpleQueue()
        self.went_well: bool | None = None
        self._codes = codes
        self._may_restart = may_restart
        self.supervisor = Supervisor(
            Supervision(list(codes), POLICY),
            self._launch,
            clock=SystemClock(),
            say=self._say,
            on_change=lambda: None,
            on_restart=self.restarts.put,
            on_last=self.ended.append,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def ends(self) -> bool | None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.went_well

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.heard.put(text)

    def _run(self) -> None:
        self.went_well = self.supervisor.run()

    def _launch(self, child: Child, previous_exit: str) -> Process:
        if not self._codes[child]:
            raise SetupError("it is not there")
        if previous_exit and self._may_restart is not None:
            assert self._may_restart.wait(PATIENCE_S)
        process = Process(self._codes[child])
        self.processes.append(process)
        self.born.put((child, previous_exit, process.pid))
        return process


def test_a_killed_process_is_replaced_and_the_new_one_is_told() -> None:
    platform = Platform({WORKER: LIVES})
    _, first_exit, pid = platform.born.get(timeout=PATIENCE_S)
    os.kill(pid, signal.SIGKILL)

    restarted = platform.restarts.get(timeout=PATIENCE_S)
    _, second_exit, second_pid = platform.born.get(timeout=PATIENCE_S)

    assert (first_exit, second_exit) == ("", "signal:SIGKILL")
    assert restarted == Restarted(WORKER, second_pid, "signal:SIGKILL")
    assert not Path(f"/proc/{pid}").exists()
    assert platform.supervisor.pids() == {WORKER: second_pid}
    platform.supervisor.stop()
    assert platform.ends() is True


def test_a_process_that_leaves_has_its_successor_beside_it() -> None:
    platform = Platform({INGRESS: DEAF, WORKER: LIVES})
    pids = dict(platform.born.get(timeout=PATIENCE_S)[::2] for _ in range(2))
    (leaver,) = (p for p in platform.processes if p.pid == pids[INGRESS])

    leaver.asks.set()

    restarted = platform.restarts.get(timeout=PATIENCE_S)
    assert (restarted.child, restarted.previous_exit) == (INGRESS, "exit:0")
    assert Path(f"/proc/{leaver.pid}").exists()
    assert platform.supervisor.pids()[INGRESS] == restarted.pid
    # A stop waits for both, and kills both.
    platform.supervisor.stop()
    assert platform.ends() is True
    for process in platform.processes:
        assert not Path(f"/proc/{process.pid}").exists()
    assert len(platform.processes) == 3


def test_a_killed_process_is_announced_before_its_successor_runs() -> None:
    may_restart = threading.Event()
    platform = Platform({WORKER: LIVES}, may_restart)
    _, _, pid = platform.born.get(timeout=PATIENCE_S)

    os.kill(pid, signal.SIGKILL)

    # The successor, a broker of which nobody hears yet, say, has not started.
    assert platform.heard.get(timeout=PATIENCE_S) == (
        "gpu-worker.0 ended with signal:SIGKILL (no such device); "
        "it is restarted at once"
    )
    may_restart.set()
    _, _, second_pid = platform.born.get(timeout=PATIENCE_S)
    assert platform.heard.get(timeout=PATIENCE_S) == (
        f"gpu-worker.0 runs again, as process {second_pid}, after signal:SIGKILL"
    )
    platform.supervisor.stop()
    assert platform.ends() is True


def test_a_stop_kills_who_does_not_listen() -> None:
    platform = Platform({WORKER: LIVES, INGRESS: DEAF})
    pids = [platform.born.get(timeout=PATIENCE_S)[2] for _ in range(2)]

    platform.supervisor.stop()

    assert platform.ends() is True
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False, False]
    assert set(platform.ended) == {WORKER, INGRESS}


def test_a_child_that_cannot_run_here_ends_everything() -> None:
    platform = Platform({WORKER: "raise SystemExit(78)", INGRESS: LIVES})

    assert platform.ends() is False
    assert "gpu-worker.0 cannot run here: no such device" in platform.said


def test_a_launch_that_fails_is_told_and_tried_again() -> None:
    platform = Platform({WORKER: ""})
    while not any("2 times in a row" in text for text in platform.said):
        assert platform.went_well is None

    platform.supervisor.stop()

    assert platform.ends() is True
    assert platform.said[0].startswith("gpu-worker.0 ended with exit:1 (it is not the")
