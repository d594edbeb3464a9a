"""What became of this process's requests, per version, in Triton's words.

Plain numbers, added to on the event loop and read by ``/v2/models/stats`` and
``/metrics``. Versions come from the catalog alone: a name that a client made up never
gets an entry.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["BatchTimes", "Statistics", "Tally", "VersionStatistics"]


class Tally:
    """How often, and how long together."""

    __slots__ = ("count", "total_us")

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0

    def add(self, total_us: int, count: int = 1) -> None:
        self.count += count
        self.total_us += total_us

    def as_json(self) -> dict[str, int]:
        return {"count": self.count, "ns": self.total_us * 1000}


class BatchTimes:
    """The runs of one batch size that this process got answers from."""

    __slots__ = ("input", "output", "run")

    def __init__(self) -> None:
        self.input = Tally()
        self.run = Tally()
        self.output = Tally()

    def add(self, input_us: int, run_us: int, output_us: int, count: int = 1) -> None:
        self.input.add(input_us * count, count)
        self.run.add(run_us * count, count)
        self.output.add(output_us * count, count)


class VersionStatistics:
    """One version's requests. ``success`` and ``fail`` are times from the request's
    head to its answer; ``queue`` is what of it was not computing."""

    def __init__(self) -> None:
        self.last_inference_ms = 0
        self.rows = 0
        self.executions = 0
        self.success = Tally()
        self.fail = Tally()
        self.queue = Tally()
        self.compute = BatchTimes()
        self.batches: dict[int, BatchTimes] = {}
        self._last_batch = ""

    def ran(
        self,
        batch: str,
        batch_rows: int,
        times_us: tuple[int, int, int],
        wall_ms: int,
    ) -> None:
        """Answers of a batch arrived; its ``times_us`` for input, run and output.
        A batch whose answers came in several records counts once."""
        self.last_inference_ms = wall_ms
        if batch != self._last_batch:
            self._last_batch = batch
            self.executions += 1
            self.batches.setdefault(batch_rows, BatchTimes()).add(*times_us)

    def succeeded(
        self, latencies_us: Sequence[int], rows: int, times_us: tuple[int, int, int]
    ) -> None:
        """Requests with ``rows`` together got their answers, from a batch that took
        ``times_us``."""
        count, busy_us = len(latencies_us), sum(times_us)
        self.rows += rows
        self.success.add(sum(latencies_us), count)
        self.queue.add(sum([max(0, each - busy_us) for each in latencies_us]), count)
        self.compute.add(*times_us, count)

    def as_json(self, model: str, version: str) -> dict[str, object]:
        """One entry of Triton's ``model_stats``."""
        none = Tally().as_json()
        return {
            "name": model,
            "version": version,
            "last_inference": self.last_inference_ms,
            "inference_count": self.rows,
            "execution_count": self.executions,
            "inference_stats": {
                "success": self.success.as_json(),
                "fail": self.fail.as_json(),
                "queue": self.queue.as_json(),
                "compute_input": self.compute.input.as_json(),
                "compute_infer": self.compute.run.as_json(),
                "compute_output": self.compute.output.as_json(),
                "cache_hit": none,
                "cache_miss": none,
            },
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": times.input.as_json(),
                    "compute_infer": times.run.as_json(),
                    "compute_output": times.output.as_json(),
                }
                for size, times in sorted(self.batches.items())
            ],
        }


class Statistics:
    """All versions' numbers."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, str], VersionStatistics] = {}

    def of(self, model: str, version: str) -> VersionStatistics:
        """The entry of a version of the catalog, made when it is first asked for."""
        found = self._versions.get((model, version))
        if found is None:
            found = self._versions[model, version] = VersionStatistics()
        return found
