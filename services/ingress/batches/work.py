"""A batch as the work of a job: its lines, their records, and the two files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from headrace.domain import HTTP_STATUS, Reason, Tensor
from headrace.errors import RequestError
from headrace.jobs.answers import Part
from headrace.jobs.desk import Desk
from headrace.jobs.outputs import RowError
from headrace.jobs.records import JobRequests, NewRecord
from headrace.jobs.running import JobSite
from headrace.jobs.work import Answer, Work
from headrace.wire import Headers
from headrace.wire.jobs import BatchOrder, JobSpec, RowRange
from services.ingress.answers import result_answer
from services.ingress.batches.checking import Call, Checker, Fault, survey
from services.ingress.batches.reading import Line, LineChunk, Lines
from services.ingress.batches.settings import FilesSettings
from services.ingress.batches.store import FileStore, Writing
from services.ingress.head import Head
from services.ingress.parsing import RequestParser, WantedOutput

__all__ = ["BatchOutput", "LineMaker", "batch_work"]

T = TypeVar("T")

_CODES: Final = {
    Reason.CANCELLED: "batch_cancelled",
    Reason.EXPIRED: "batch_expired",
}
"""The API's words for lines that did not run because of the batch."""

_encode = msgspec.json.encode


class _Asked(NamedTuple):
    request_id: str
    client_id: str
    wanted: tuple[WantedOutput, ...]
    head: Head


def batch_work(
    site: JobSite, store: FileStore, limits: FilesSettings, parser: RequestParser
) -> Work:
    """Looks through the input once.

    Raises :class:`headrace.errors.RequestError` for a file that is no batch, and
    :class:`headrace.errors.StoreUnavailable`.
    """
    spec = site.spec
    order = spec.batch
    assert order is not None
    if store.describe(spec.tenant, order.input_file_id) is None:
        raise RequestError(f"the file {order.input_file_id} was deleted")
    lines = Lines(
        lambda: store.open(spec.tenant, order.input_file_id),
        limits.batch_line_bytes_max,
    )
    found = survey(lines.all(), limits.batch_lines_max)
    lines.rows = found.lines
    checker = Checker(parser, order.endpoint, found.repeated)
    results = site.topics.results(spec.tenant, spec.job)
    maker = LineMaker(spec, checker, results, site.payload_bytes_max)
    return Work(
        lines,
        maker,
        BatchOutput(spec, order, store, lines, checker, limits.keep_s),
        keeps_some=True,
    )


class LineMaker:
    """Makes the records of one batch, one for each line. A desk hears of the lines
    that are no requests; what is wrong is found again when the files are written."""

    def __init__(
        self, spec: JobSpec, checker: Checker, results: str, payload_bytes_max: int
    ) -> None:
        self._checker = checker
        self._payload_bytes_max = payload_bytes_max
        self._requests = JobRequests(spec, results)

    def records(self, chunk: LineChunk, desk: Desk[T]) -> Iterator[NewRecord]:
        """Those that the desk wants, in order."""
        for line in chunk.lines:
            rows = RowRange(line.item, 1)
            if desk.planned(rows):
                yield from self._made(line, rows, desk)

    def again(
        self, chunk: LineChunk, gap: RowRange, desk: Desk[T]
    ) -> Iterator[NewRecord]:
        for line in chunk.lines:
            if gap.first <= line.item < gap.end:
                yield from self._made(line, RowRange(line.item, 1), desk)

    def record(self, rows: RowRange, tensors: tuple[Tensor, ...]) -> NewRecord:
        """Records carry one line each: there are no parts of them to be sent."""
        raise AssertionError((rows, tensors))

    def cancel(self, rows: RowRange) -> Headers:
        return self._requests.cancel(rows)

    def _made(self, line: Line, rows: RowRange, desk: Desk[T]) -> Iterator[NewRecord]:
        checked = self._checker.check(line)
        if isinstance(checked, Fault):
            desk.broken(line.item, checked.text)
            return
        parsed = checked.parsed
        record = self._requests.record(
            rows, parsed.key, parsed.tensors, parsed.client_id
        )
        size = len(record.value)
        if size > self._payload_bytes_max:
            text = (
                f"the request has {size} bytes, at most {self._payload_bytes_max} are "
                "allowed (payload_bytes_max)"
            )
            desk.broken(line.item, text)
            return
        yield record


class BatchOutput:
    """The file of results and the file of errors, in the order of the lines."""

    def __init__(
        self,
        spec: JobSpec,
        order: BatchOrder,
        store: FileStore,
        lines: Lines,
        checker: Checker,
        keep_s: int | None = None,
    ) -> None:
        """``keep_s``: how long its files are kept, unless ``order`` says."""
        self._spec = spec
        self._keep_s = order.output_expires_s or keep_s
        self._checker = checker
        self._lines = lines.all()
        self._results = store.begin(spec.tenant, order.output_file_id)
        self._errors = store.begin(spec.tenant, order.error_file_id)

    def add(self, part: Part[Answer]) -> None:
        for item in range(part.first, part.first + part.rows):
            line = next(self._lines)
            assert line.item == item
            self._write(line, part.answer)

    def put(self) -> None:
        for file, what in ((self._results, "output"), (self._errors, "errors")):
            if file.bytes:
                name = f"{self._spec.job}_{what}.jsonl"
                file.keep(name, "batch_output", self._keep_s)
            else:
                file.drop()

    def drop(self) -> None:
        self._results.drop()
        self._errors.drop()

    def _write(self, line: Line, answer: Answer) -> None:
        checked = self._checker.check(line)
        if isinstance(checked, Fault):
            self._refuse(line, checked)
        elif isinstance(answer, RowError):
            self._refuse(line, _fault_of(checked.custom_id, answer))
        else:
            self._answer(line, checked, answer)

    def _answer(self, line: Line, call: Call, outputs: tuple[Tensor, ...]) -> None:
        spec, parsed = self._spec, call.parsed
        asked = _Asked(self._id(line), parsed.client_id, parsed.wanted, Head())
        try:
            _, body = result_answer(asked, spec.model, spec.version, outputs)
        except RequestError as error:
            told = RowError(Reason.MODEL_ERROR, str(error))
            self._refuse(line, _fault_of(call.custom_id, told))
            return
        response = self._response(line, 200, b"".join(body))
        self._put_line(self._results, line, call.custom_id, response, b"null")

    def _refuse(self, line: Line, fault: Fault) -> None:
        response = b"null"
        if fault.is_answer:
            status = HTTP_STATUS[Reason(fault.code)]
            body = _encode({"error": fault.text})
            response = self._response(line, status, body)
        told = {
            "code": fault.code,
            "message": fault.text,
            "param": None,
            "line": line.number,
        }
        self._put_line(self._errors, line, fault.custom_id, response, _encode(told))

    def _response(self, line: Line, status: int, body: bytes) -> bytes:
        request_id = _encode(self._id(line))
        return b'{"status_code":%d,"request_id":%b,"body":%b}' % (
            status,
            request_id,
            body,
        )

    def _id(self, line: Line) -> str:
        """By which the log knows the request of the line."""
        return RowRange(line.item, 1).id_in(self._spec.job)

    def _put_line(
        self,
        file: Writing,
        line: Line,
        custom_id: str | None,
        response: bytes,
        error: bytes,
    ) -> None:
        file.write(
            b'{"id":"batch_req_%b_%d","custom_id":%b,"response":%b,"error":%b}\n'
            % (
                self._spec.job.removeprefix("batch_").encode(),
                line.item,
                _encode(custom_id),
                response,
                error,
            )
        )


def _fault_of(custom_id: str, error: RowError) -> Fault:
    reason = next((each for each in Reason if each == error.reason), None)
    if reason is None or reason in _CODES:
        code = _CODES[reason] if reason else error.reason
        return Fault(custom_id, code, error.text)
    return Fault(custom_id, reason.value, error.text, is_answer=True)
