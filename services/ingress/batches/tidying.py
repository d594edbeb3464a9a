"""What is over goes: files that have expired, jobs that ended long ago, and the topics
of replays that were killed.

The ingress that leads does it, soon after it begins to and every hour from then on,
so that nothing depends on a process living as long as a file.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from headrace.broker import KafkaConnection
from headrace.clock import wall_us
from headrace.errors import BusError, StoreUnavailable
from headrace.jobs.forgetting import forget, forgettable
from headrace.registry import JobTable
from headrace.replay.leftovers import remove_leftovers
from headrace.telemetry import get_log
from headrace.wire import Topics
from headrace.wire.jobs import JobSpec
from services.ingress.batches.leading import has_ended
from services.ingress.batches.store import FileStore

__all__ = ["Tidying", "in_use"]


def in_use(table: JobTable) -> set[tuple[str, str]]:
    """Tenants and files that batches still read, expired or not."""
    return {
        (job.spec.tenant, job.spec.batch.input_file_id)
        for job in table.all()
        if job.spec is not None and job.spec.batch is not None and not has_ended(job)
    }


class Tidying:
    """What fails is tried again the next time."""

    def __init__(
        self,
        store: FileStore,
        connection: KafkaConnection,
        topics: Topics,
        keep_s: int | None,
    ) -> None:
        self._store = store
        self._connection = connection
        self._topics = topics
        self._keep_s = keep_s
        self._thread: threading.Thread | None = None
        self._log = get_log()

    def begin(self, table: JobTable) -> None:
        """In a thread of its own, unless that of the last time is still at it."""
        if self._thread is not None and self._thread.is_alive():
            return
        old = []
        if self._keep_s is not None:
            old = forgettable(table, wall_us(), self._keep_s * 1_000_000)
        self._thread = threading.Thread(
            target=self.tidy, args=(in_use(table), old), name="tidy", daemon=True
        )
        self._thread.start()

    def tidy(self, used: Collection[tuple[str, str]], old: list[JobSpec]) -> None:
        removed = 0
        try:
            for tenant, file_id in self._store.over():
                if (tenant, file_id) not in used:
                    is_described = self._store.delete(tenant, file_id)
                    if not is_described:
                        self._store.drop(tenant, file_id)
                    removed += 1
            for spec in old:
                forget(self._connection, self._topics, spec)
            remove_leftovers(self._connection, self._topics, wall_us())
        except (BusError, StoreUnavailable) as error:
            self._log.warning("files.not_tidied", text=str(error))
        if removed or old:
            self._log.info("files.tidied", files=removed, jobs=len(old))
