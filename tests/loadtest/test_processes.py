"""What the kernel counts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from loadtest.processes import Usage, cpu_ns, foreign_cores, memory_bytes

SPIN = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"


def test_processor_time_of_another_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 200e6 <= cpu_ns(process.pid) <= 400e6
        process.kill()
    with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
        cpu_ns(process.pid)


def test_memory_is_what_a_process_holds() -> None:
    before = memory_bytes(os.getpid())
    held = b"x" * 32_000_000
    assert memory_bytes(os.getpid()) - before > 30_000_000
    del held


def test_foreign_is_what_neither_side_of_the_test_used() -> None:
    before = Usage(0, {"a": 10, "b": 0}, 1000)
    after = Usage(100, {"a": 50, "b": 20}, 1000 + 60 + 30 + 50)
    assert foreign_cores(before, after, 30) == 0.5
    assert foreign_cores(before, after, 200) == 0
