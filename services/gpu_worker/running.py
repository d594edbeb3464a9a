"""The thread that runs: one job at a time, and nothing else on its way to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from headrace.clock import Clock
from services.gpu_worker.jobs import Job

__all__ = ["Runner"]


class Runner:
    """Calls ``ended(job)`` on its own thread when a job's outcomes are known."""

    def __init__(
        self, clock: Clock, ended: Callable[[Job], None], *, payload_bytes_max: int
    ) -> None:
        self._clock = clock
        self._ended = ended
        self._payload_bytes_max = payload_bytes_max
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="run", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, job: Job) -> None:
        """Never blocks; the runner is idle when it is asked."""
        self._jobs.put(job)

    def stop_run(self, job: Job) -> None:
        """End the job's run, which then fails."""
        if job.runnable is not None:
            job.runnable.session.stop()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            began_us = self._clock.now_us()
            job.wait_us = began_us - job.read_us
            if not job.outcomes:
                job.run()
                ended_us = self._clock.now_us()
                job.run_us = max(1, ended_us - began_us)
                job.share_out(self._payload_bytes_max)
                job.output_us = self._clock.now_us() - ended_us
            self._ended(job)
