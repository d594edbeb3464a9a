"""One run of a job's publisher, from where the last one stopped.

All that must survive stands in the log: the results, the dead letters, and in
``control.jobs`` how far the rows are published. A publisher that is killed leaves an
unfinished file beside the output, which the next one writes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.broker import BulkExchange, KafkaConnection
from headrace.clock import SystemClock
from headrace.delivery import Mark
from headrace.domain import ServedVersion
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
from headrace.wire import Topics
from headrace.wire.jobs import JobProgress, JobSpec, JobState, RowRange

__all__ = ["input_rows", "run_job"]

LETTERS_SLACK_US: Final = 600_000_000
"""The submitter's clock and the log's may differ by so much."""


def input_rows(spec: JobSpec, served: ServedVersion) -> tuple[InputRows, Columns]:
    """Raises :class:`headrace.errors.RequestError` where no row could fit."""
    urls = [each.url for each in spec.inputs]
    rows = InputRows(urls)
    columns = Columns(served, rows.schema, spec.columns)
    if columns.floats:
        rows = InputRows(urls, columns.floats)
        columns = Columns(served, rows.schema, spec.columns)
    return rows, columns


def run_job(
    connection: KafkaConnection,
    topics: Topics,
    spec: JobSpec,
    served: ServedVersion,
    *,
    payload_bytes_max: int,
    told: Callable[[JobProgress], None],
) -> JobProgress:
    """Publish the rows and write the output; returns when every row has its end, or
    the job was cancelled. ``told`` hears of its progress about every second.

    Raises :class:`headrace.errors.RequestError` for what is wrong with the job's files,
    :class:`headrace.jobs.JobTaken`, and :class:`headrace.errors.BusError`.
    """
    watch = JobWatch(connection, topics, spec)
    watch.claim()
    try:
        run = _Run(connection, topics, spec, served, watch, told)
        return run.to_its_end(payload_bytes_max)
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


class _Run:
    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        spec: JobSpec,
        served: ServedVersion,
        watch: JobWatch,
        told: Callable[[JobProgress], None],
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._spec = spec
        self._served = served
        self._watch = watch
        self._told = told
        self._is_cancelled = False
        self._mark: tuple[int, Mark] | None = None

    def to_its_end(self, payload_bytes_max: int) -> JobProgress:
        spec = self._spec
        _check_unchanged(spec)
        self._rows, columns = input_rows(spec, self._served)
        known = self._known()
        results = self._topics.results(spec.tenant, spec.job)
        self._exchange = BulkExchange(
            self._connection,
            self._topics,
            spec.model,
            results,
            since_us=max(spec.submitted_us - LETTERS_SLACK_US, 0),
            priority=spec.priority,
        )
        self._desk: Desk[Held] = Desk(self._watch.progress.published, known)
        output = Output(spec.output, self._served, self._rows)
        try:
            self._publishing = Publishing(
                self._connection,
                spec,
                desk=self._desk,
                rows=self._rows,
                maker=RecordMaker(
                    spec,
                    self._served,
                    columns,
                    results=results,
                    payload_bytes_max=payload_bytes_max,
                ),
                exchange=self._exchange,
                output=output,
                clock=SystemClock(),
            )
            if self._watch.before is not None:
                self._publishing.catch_up(known)
            if not self._publishing.run(self._may_go_on):
                return self._cancelled(output)
        except BaseException:
            output.drop()
            raise
        finally:
            self._exchange.close()
        output.put()
        return self._tell(JobState.DONE)

    def _known(self) -> set[RowRange]:
        """What waits in the log from rows after those told to be published."""
        if self._watch.before is None:
            return set()
        return published_since(
            self._connection,
            self._topics.requests(self._spec.model),
            self._watch.progress.positions,
            self._spec,
        )

    def _may_go_on(self) -> bool:
        try:
            self._tell(JobState.RUNNING)
            self._is_cancelled = self._watch.is_cancelled()
        except BusError:
            return True  # a broker that is away; the next time will do
        return not self._is_cancelled

    def _tell(self, state: JobState) -> JobProgress:
        rows = self._rows.rows
        if rows is None and self._publishing.is_planned:
            rows = self._desk.cursor
        progress = self._watch.progress
        published, positions = progress.published, progress.positions
        pacing = self._exchange.pacing
        if self._mark is not None and pacing.has_acked(self._mark[1]):
            published, positions = self._mark[0], self._mark[1].ends
            self._mark = None
        if self._mark is None:
            self._mark = self._publishing.next_row, pacing.mark()
        progress = self._watch.tell(
            state=state,
            rows=rows,
            done=self._desk.frontier,
            failed=self._desk.failed,
            published=published,
            positions=positions,
        )
        self._told(progress)
        return progress

    def _cancelled(self, output: Output) -> JobProgress:
        self._publishing.take_back()
        output.drop()
        return self._tell(JobState.CANCELLED)


def _check_unchanged(spec: JobSpec) -> None:
    """Rows have numbers, so a file that was changed is another job's."""
    for told in spec.inputs:
        (found,) = find([told.url])
        if (found.size, found.modified) != (told.size, told.modified):
            raise RequestError(
                f"{told.url} has changed since the job was submitted: it has "
                f"{found.size} bytes, and had {told.size}; submit another job"
            )
