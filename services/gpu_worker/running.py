"""The thread that runs: one job at a time, and nothing else on its way to the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from headrace.clock import Clock
from services.gpu_worker.jobs import Job

__all__ = ["Runner"]


class Runner:
    """Calls ``ended(job)`` on its own thread when a job's outcomes are known, and goes
    on with the job that it returns: a device that waits for another thread to wake up
    idles for 0.1 ms, and for several on a busy machine."""

    def __init__(self, clock: Clock, *, payload_bytes_max: int) -> None:
        """``payload_bytes_max`` is of a reply, wherever it travels."""
        self._clock = clock
        self._payload_bytes_max = payload_bytes_max
        self._jobs: SimpleQueue[Job] = SimpleQueue()

    def start(self, ended: Callable[[Job], Job | None]) -> None:
        threading.Thread(
            target=self._work, args=(ended,), name="run", daemon=True
        ).start()

    def run(self, job: Job) -> None:
        """Never blocks; the runner is idle when it is asked."""
        self._jobs.put(job)

    def stop_run(self, job: Job) -> None:
        """End the job's run, which then fails."""
        job.must_stop = True
        if job.runnable is not None:
            job.runnable.session.stop()

    def _work(self, ended: Callable[[Job], Job | None]) -> None:
        following: Job | None = None
        while True:
            job = following or self._jobs.get()
            began_us = self._clock.now_us()
            job.complete()
            job.wait_us = began_us - job.read_us
            if not job.outcomes:
                job.run()
                ended_us = self._clock.now_us()
                job.run_us = max(1, ended_us - began_us)
                job.share_out(self._payload_bytes_max)
                job.output_us = self._clock.now_us() - ended_us
            following = ended(job)
