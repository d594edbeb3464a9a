"""One run of a job's publisher, from where the last one stopped.

All that must survive stands in the log: the results, the dead letters, and in
``control.jobs`` how far the rows are published. A publisher that is killed leaves an
unfinished file beside the output, which the next one writes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from headrace.broker import BulkExchange, KafkaConnection
from headrace.clock import wall_us
from headrace.delivery import Mark
from headrace.domain import PayloadRef, ServedVersion
from headrace.errors import BusError, RequestError
from headrace.jobs.columns import Columns
from headrace.jobs.desk import Desk
from headrace.jobs.output import Output
from headrace.jobs.publishing import Held, Publishing
from headrace.jobs.reading import InputRows
from headrace.jobs.records import RecordMaker
from headrace.jobs.resuming import published_since
from headrace.jobs.store import find
from headrace.jobs.watching import JobTaken, JobWatch
from headrace.jobs.work import Work
from headrace.wire import Topics
from headrace.wire.jobs import (
    JobProgress,
    JobSpec,
    JobStage,
    JobState,
    RowRange,
)

__all__ = ["JobSite", "collect", "input_rows", "run_job"]

UNANSWERED: Final = "unanswered"
"""The reason of a row that was collected before it had an outcome."""

CANCELLED: Final = "cancelled"
"""The reason of a row that was taken back, or never published."""

SETTLED_WITHIN_US: Final = 15_000_000
"""So long a cancelled job waits for what runs, if it writes what it has."""

LETTERS_SLACK_US: Final = 600_000_000
"""The submitter's clock and the log's may differ by so much."""


def input_rows(spec: JobSpec, served: ServedVersion) -> tuple[InputRows, Columns]:
    """Raises :class:`headrace.errors.RequestError` where no row could fit."""
    rows = InputRows([each.url for each in spec.inputs])
    columns = Columns(served, rows.schema, spec.columns)
    rows = rows.with_fed(columns.fed)
    return rows, Columns(served, rows.schema, spec.columns)


class JobSite(NamedTuple):
    """A job and the platform that it runs on; ``payload_bytes_max``: the platform's.
    ``read`` gives an object of its payload store, or raises PayloadLost or
    StoreUnavailable; None: outputs that lie there fail their row."""

    connection: KafkaConnection
    topics: Topics
    spec: JobSpec
    served: ServedVersion
    payload_bytes_max: int
    read: Callable[[PayloadRef], memoryview] | None = None


def run_job(
    site: JobSite,
    told: Callable[[JobProgress], None],
    work_of: Callable[[JobSite], Work] | None = None,
) -> JobProgress:
    """Publish the rows and write the output; returns when every row has its end, or
    the job was cancelled. ``told`` hears of its progress about every second.
    ``work_of``: what the job is made of; None: the rows of its files.

    Raises :class:`headrace.errors.RequestError` for what is wrong with the job's files,
    :class:`headrace.jobs.JobTaken`, and :class:`headrace.errors.BusError`.
    """
    watch = JobWatch(site.connection, site.topics, site.spec)
    watch.claim()
    try:
        work = (work_of or _row_work)(site)
        known = _published(site, watch)
        with _working(site, work, watch.progress.published, known) as parts:
            return _Run(parts, watch, told).to_its_end(known)
    except JobTaken:
        raise
    except RequestError as error:
        watch.tell(state=JobState.FAILED, text=str(error))
        raise
    except KeyboardInterrupt:
        watch.tell(state=JobState.STOPPED)
        raise
    finally:
        watch.close()


def collect(site: JobSite, output: str) -> tuple[int, int]:
    """Write the rows that have been answered so far to ``output``; how many rows there
    are, and how many without outputs. Raises as :func:`run_job`."""
    work = _row_work(site, output)
    with _working(site, work, 0, set()) as parts:
        parts.publishing.catch_up(set())
        rows = work.items.rows
        if rows is None:
            rows = sum(chunk.batch.num_rows for chunk in work.items.chunks())
        parts.desk.give_up(rows, UNANSWERED, "it has no outcome so far")
        parts.publishing.write()
        work.output.put()
        return rows, parts.desk.failed


class _Parts(NamedTuple):
    """What works on one job."""

    work: Work
    exchange: BulkExchange
    desk: Desk[Held]
    publishing: Publishing


def _row_work(site: JobSite, url: str = "") -> Work:
    """``url``: of another output than the job's."""
    spec = site.spec
    _check_unchanged(spec)
    rows, columns = input_rows(spec, site.served)
    maker = RecordMaker(
        spec,
        site.served,
        columns,
        results=site.topics.results(spec.tenant, spec.job),
        payload_bytes_max=site.payload_bytes_max,
    )
    return Work(rows, maker, Output(url or spec.output, site.served, rows))


@contextmanager
def _working(
    site: JobSite, work: Work, start: int, known: set[RowRange]
) -> Iterator[_Parts]:
    """Without an output where it does not come to its end."""
    spec = site.spec
    try:
        exchange = _exchange(site)
    except BusError:
        work.output.drop()
        raise
    try:
        desk: Desk[Held] = Desk(start, known)
        publishing = Publishing(
            site.connection,
            spec,
            desk=desk,
            work=work,
            exchange=exchange,
            read=site.read,
        )
        yield _Parts(work, exchange, desk, publishing)
    finally:
        work.output.drop()
        exchange.close()


def _exchange(site: JobSite) -> BulkExchange:
    spec = site.spec
    return BulkExchange(
        site.connection,
        site.topics,
        spec.model,
        site.topics.results(spec.tenant, spec.job),
        since_us=max(spec.submitted_us - LETTERS_SLACK_US, 0),
        priority=spec.priority,
    )


class _Run:
    """Publishes one job to its end and tells of it."""

    def __init__(
        self, parts: _Parts, watch: JobWatch, told: Callable[[JobProgress], None]
    ) -> None:
        self._parts = parts
        self._watch = watch
        self._told = told
        self._mark: tuple[int, Mark] | None = None

    def to_its_end(self, known: set[RowRange]) -> JobProgress:
        publishing = self._parts.publishing
        if self._watch.before is not None:
            publishing.catch_up(known)
            self._watch.tell(found=self._parts.desk.frontier)
        if not self._watch.progress.positions:
            # Before the first record, so that a successor looks no further back.
            self._watch.tell(positions=self._parts.exchange.pacing.mark().ends)
        self._reach(JobStage.PUBLISHING)
        if publishing.run(self._may_go_on):
            self._reach(JobStage.WRITING)
            self._parts.work.output.put()
            return self._end(JobState.DONE)
        publishing.take_back()
        if self._parts.work.keeps_some:
            self._keep_some()
        return self._end(JobState.CANCELLED)

    def _keep_some(self) -> None:
        work, _, desk, publishing = self._parts
        publishing.settle(SETTLED_WITHIN_US)
        publishing.write()
        text = "the job was cancelled before it ran"
        desk.give_up(work.items.rows or desk.cursor, CANCELLED, text)
        publishing.write()
        work.output.put()

    def _reach(self, stage: JobStage) -> None:
        stages = self._watch.progress.stages
        self._watch.tell(stages={stage: wall_us()} | stages)

    def _end(self, state: JobState) -> JobProgress:
        self._reach(JobStage.ENDED)
        return self._tell(state)

    def _may_go_on(self) -> bool:
        try:
            self._tell(JobState.RUNNING)
            return not self._watch.is_cancelled()
        except BusError:
            return True  # a broker that is away; the next time will do

    def _tell(self, state: JobState) -> JobProgress:
        work, exchange, desk, publishing = self._parts
        count = work.items.rows
        if count is None and publishing.is_planned:
            count = desk.cursor
        published = self._watch.progress.published
        positions = self._watch.progress.positions
        if self._mark is not None and exchange.pacing.has_acked(self._mark[1]):
            published, positions = self._mark[0], self._mark[1].ends
            self._mark = None
        if self._mark is None:
            self._mark = publishing.next_row, exchange.pacing.mark()
        progress = self._watch.tell(
            state=state,
            rows=count,
            done=desk.frontier,
            failed=desk.failed,
            expired=desk.expired,
            published=published,
            positions=positions,
        )
        self._told(progress)
        return progress


def _published(site: JobSite, watch: JobWatch) -> set[RowRange]:
    """What lies in the log of the rows after those told to be published."""
    if watch.before is None:
        return set()
    topic = site.topics.requests(site.spec.model)
    positions = watch.progress.positions
    return published_since(site.connection, topic, positions, site.spec)


def _check_unchanged(spec: JobSpec) -> None:
    """Rows have numbers, so a file that was changed is another job's."""
    for told in spec.inputs:
        (found,) = find([told.url])
        if (found.size, found.modified) != (told.size, told.modified):
            raise RequestError(
                f"{told.url} has changed since the job was submitted: it has "
                f"{found.size} bytes, and had {told.size}; submit another job"
            )
