"""What the kernel counts."""

from __future__ import annotations

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
    holding = "held = b'x' * 32_000_000; print(flush=True); input()"
    # A process of its own: this one may reuse what earlier tests have given back.
    with subprocess.Popen(
        [sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 32_000_000 < memory_bytes(process.pid) < 64_000_000
        process.communicate(b"\n")


def test_foreign_is_what_neither_side_of_the_test_used() -> None:
    before = Usage(0, {"a": 10, "b": 0}, 1000)
    after = Usage(100, {"a": 50, "b": 20}, 1000 + 60 + 30 + 50)
    assert foreign_cores(before, after, 30) == 0.5
    assert foreign_cores(before, after, 200) == 0
