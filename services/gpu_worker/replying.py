"""Results on their way: one record per ingress, one per plain reader's request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.broker import Delivery, Headers, Producer
from headrace.delivery.worker_events import RepliesEnded
from headrace.domain import PayloadRef, ReplyAddress, Tensor
from headrace.errors import BusError, HeadraceError, StoreUnavailable
from headrace.wire import (
    LENGTH,
    PROTOBUF_HEADERS,
    ROWS,
    BatchedOutput,
    RunFacts,
    encode_replies,
    plain_reply,
)
from services.gpu_worker.claims import WorkerClaims
from services.gpu_worker.jobs import Job

__all__ = ["Replier", "ReplyRecord", "reply_records"]

ANY_PARTITION = -1
"""The client chooses by the key."""


class ReplyRecord(NamedTuple):
    """A record and the members whose results it holds."""

    members: tuple[int, ...]
    topic: str
    partition: int
    key: bytes | None
    headers: Headers
    value: bytes | None


class Replier:
    """Writes results and tells ``ended`` what became of each record, from the thread
    that polls the producer, or at once where nothing had to be sent."""

    def __init__(
        self,
        producer: Producer,
        ended: Callable[[RepliesEnded], None],
        claims: WorkerClaims,
        *,
        batch_bytes_max: int,
    ) -> None:
        self._claims = claims
        self._producer = producer
        self._ended = ended
        self._batch_bytes_max = batch_bytes_max

    def write(self, job: Job, members: Sequence[int], worker: str) -> None:
        """Never blocks."""
        addresses = job.batch.addresses
        silent = tuple(each for each in members if addresses[each] is None)
        if silent:
            self._ended(RepliesEnded(job.batch.batch, silent, acked=True))
        bytes_max = self._claims.inline_bytes_max
        large = [
            each
            for each in members
            if addresses[each] is not None and job.reply_bytes(each) > bytes_max
        ]
        inline = [each for each in members if each not in large] if large else members
        for record in reply_records(job, inline, worker, self._batch_bytes_max):
            self._produce(job.batch.batch, record)
        for member in large:
            self._claim(job, member, worker)

    def _claim(self, job: Job, member: int, worker: str) -> None:
        """Through the payload store. Where that fails the request runs again."""
        batch = job.batch.batch

        def written(payload: PayloadRef | None, _error: HeadraceError | None) -> None:
            if payload is None:
                self._ended(RepliesEnded(batch, (member,), acked=False))
            else:
                self._produce(batch, claimed_record(job, member, worker, payload))

        pieces = [output.piece(member) for output in job.outputs]
        try:
            self._claims.write(job.batch, member, pieces, written)
        except StoreUnavailable as error:
            written(None, error)

    def _produce(self, batch: str, record: ReplyRecord) -> None:
        def end(delivery: Delivery) -> None:
            acked = delivery.error is None
            self._ended(RepliesEnded(batch, record.members, acked))

        try:
            self._producer.produce(
                record.topic,
                record.partition,
                record.value,
                key=record.key,
                headers=record.headers,
                on_delivery=end,
            )
        except BusError:
            self._ended(RepliesEnded(batch, record.members, acked=False))


def reply_records(
    job: Job, members: Sequence[int], worker: str, batch_bytes_max: int
) -> Iterator[ReplyRecord]:
    """The records that carry these members' results."""
    facts = RunFacts(worker, job.wait_us, job.input_us, job.run_us, job.output_us)
    by_address: dict[ReplyAddress, list[int]] = {}
    for member in members:
        address = job.batch.addresses[member]
        if address is not None:
            by_address.setdefault(address, []).append(member)
    for (topic, partition), addressed in by_address.items():
        if partition is None:
            for member in addressed:
                yield _plain(job, member, topic)
            continue
        for part in _parts(job, addressed, batch_bytes_max):
            outputs = [
                BatchedOutput(
                    output.name,
                    output.datatype,
                    output.shape,
                    tuple(output.piece(member) for member in part),
                )
                for output in job.outputs
            ]
            value = encode_replies(job.batch, part, outputs, facts)
            yield ReplyRecord(
                tuple(part), topic, partition, None, PROTOBUF_HEADERS, value
            )


def claimed_record(
    job: Job, member: int, worker: str, payload: PayloadRef
) -> ReplyRecord:
    """The record that names a member's result."""
    address = job.batch.addresses[member]
    assert address is not None
    topic, partition = address
    if partition is None:
        return _plain(job, member, topic, payload)
    facts = RunFacts(worker, job.wait_us, job.input_us, job.run_us, job.output_us)
    outputs = [
        BatchedOutput(output.name, output.datatype, output.shape, (b"",))
        for output in job.outputs
    ]
    value = encode_replies(job.batch, [member], outputs, facts, {0: payload})
    return ReplyRecord((member,), topic, partition, None, PROTOBUF_HEADERS, value)


def _parts(job: Job, members: list[int], bytes_max: int) -> Iterator[list[int]]:
    """Members in order, as many at a time as fit a record."""
    if sum(output.bounds[-1] for output in job.outputs) <= bytes_max:
        yield members
        return
    part: list[int] = []
    total = 0
    for member in members:
        size = sum(len(output.piece(member)) for output in job.outputs)
        if part and total + size > bytes_max:
            yield part
            part, total = [], 0
        part.append(member)
        total += size
    yield part


def _plain(
    job: Job, member: int, topic: str, payload: PayloadRef | None = None
) -> ReplyRecord:
    lengths = job.batch.lengths
    marks = {
        ROWS: job.batch.rows[member],
        LENGTH: lengths[member] if lengths else 0,
    }
    tensors = [
        Tensor(
            output.name,
            output.datatype,
            tuple(marks.get(extent, extent) for extent in output.shape),
            output.piece(member),
        )
        for output in job.outputs
    ]
    record = plain_reply(job.batch, member, tensors, payload)
    return ReplyRecord(
        (member,), topic, ANY_PARTITION, record.key, record.headers, record.value
    )
