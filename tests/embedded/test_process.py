"""A child is tied to this process, whichever thread has started it."""

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from headrace.embedded import TiedProcess

_SLEEP = ("-c", "import time; time.sleep(600)")
_DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"deaf")
time.sleep(600)
"""
# Starts a child, prints its pid and is killed.
_PARENT = """
import sys, time
from headrace.embedded import TiedProcess
child = TiedProcess([sys.executable, "-c", "import time; time.sleep(600)"], output=2)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_it_outlives_the_thread_that_has_started_it() -> None:
    born: list[TiedProcess] = []

    def start() -> None:
        born.append(TiedProcess([sys.executable, *_SLEEP], output=subprocess.DEVNULL))

    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
    (child,) = born
    assert child.wait(0.3) is None
    assert child.stop(30) == -signal.SIGTERM


def test_it_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
    assert psutil.wait_procs([child], timeout=30)[1] == []


def test_one_that_does_not_listen_is_killed() -> None:
    reader, writer = os.pipe()
    child = TiedProcess([sys.executable, "-c", _DEAF], output=writer)
    assert os.read(reader, 100) == b"deaf"
    assert child.stop(0.2) == -signal.SIGKILL
    os.close(reader)
    os.close(writer)


def test_it_has_a_session_of_its_own() -> None:
    child = TiedProcess([sys.executable, *_SLEEP], output=subprocess.DEVNULL)
    try:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
    finally:
        child.stop(30)


def test_its_exit_status_is_told() -> None:
    child = TiedProcess([sys.executable, "-c", "raise SystemExit(7)"], output=2)
    assert child.wait(30) == 7
    assert child.returncode == 7
    assert child.stop(0) == 7


def test_a_program_that_is_not_there_ends_at_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    child = TiedProcess(["/nowhere/program"], output=2)
    assert child.wait(30) == 1
    assert "/nowhere/program" in capfd.readouterr().err
