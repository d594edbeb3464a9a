"""Results on their way: one record per ingress, one per plain reader's request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.broker import Delivery, Headers, Producer
from headrace.delivery.worker_events import RepliesEnded, ReplyStoring
from headrace.domain import PayloadRef, ReplyAddress, Tensor
from headrace.errors import BusError, HeadraceError, StoreUnavailable
from headrace.wire import (
    LENGTH,
    PROTOBUF_HEADERS,
    ROWS,
    RunFacts,
    encode_replies,
    plain_reply,
)
from services.gpu_worker.claims import WorkerClaims
from services.gpu_worker.jobs import Job

__all__ = ["Replier", "ReplyRecord", "reply_records"]

HEADERS: Headers = list(PROTOBUF_HEADERS)

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
    """Writes results and says by ``told`` what became of each record: from the thread
    that polls the producer, which calls ``tell_acked``, or from the store's, or at once
    where nothing had to be sent."""

    def __init__(
        self,
        producer: Producer,
        told: Callable[[Sequence[RepliesEnded | ReplyStoring]], None],
        claims: WorkerClaims,
        *,
        batch_bytes_max: int,
    ) -> None:
        self._acked: list[RepliesEnded] = []
        self._written: list[tuple[str, ReplyRecord]] = []
        self._claims = claims
        self._producer = producer
        self._told = told
        self._batch_bytes_max = batch_bytes_max

    def write(self, job: Job, members: Sequence[int], worker: str) -> None:
        """``members`` in the order of the batch; sent by :meth:`send`. Never blocks."""
        addresses = job.batch.addresses
        if None in addresses:
            silent = tuple(each for each in members if addresses[each] is None)
            if silent:
                self._told([RepliesEnded(job.batch.batch, silent, acked=True)])
            members = [each for each in members if addresses[each] is not None]
        inline: Sequence[int] = members
        bytes_max = self._claims.inline_bytes_max
        if job.output_bytes > bytes_max:
            large = [each for each in members if job.reply_bytes(each) > bytes_max]
            inline = [each for each in members if each not in large]
            for member in large:
                self._claim(job, member, worker)
        for record in reply_records(job, inline, worker, self._batch_bytes_max):
            self._written.append((job.batch.batch, record))

    def send(self) -> None:
        """Made before, the records of several runs share a produce request."""
        written, self._written = self._written, []
        for batch, record in written:
            self._produce(batch, record)

    def tell_acked(self) -> None:
        """What was heard of in one poll."""
        acked, self._acked = self._acked, []
        if acked:
            self._told(acked)

    def _claim(self, job: Job, member: int, worker: str) -> None:
        """Through the payload store. Where that fails the request runs again, and is
        told so at its last attempt."""
        batch = job.batch.batch

        def written(payload: PayloadRef | None, error: HeadraceError | None) -> None:
            if payload is None:
                why = str(error)
                self._told([RepliesEnded(batch, (member,), acked=False, unstored=why)])
            else:
                self._told([ReplyStoring(batch, member, is_stored=True)])
                self._produce(batch, claimed_record(job, member, worker, payload))

        pieces = [output.piece(member) for output in job.outputs]
        self._told([ReplyStoring(batch, member, is_stored=False)])
        try:
            self._claims.write(job.batch, member, pieces, written)
        except StoreUnavailable as error:
            written(None, error)

    def _produce(self, batch: str, record: ReplyRecord) -> None:
        def end(delivery: Delivery) -> None:
            acked = delivery.error is None
            self._acked.append(RepliesEnded(batch, record.members, acked))

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
            self._told([RepliesEnded(batch, record.members, acked=False)])


def reply_records(
    job: Job, members: Sequence[int], worker: str, batch_bytes_max: int
) -> Iterator[ReplyRecord]:
    """The records that carry these members' results, in the order of the batch."""
    facts = RunFacts(worker, job.wait_us, job.input_us, job.run_us, job.output_us)
    for (topic, partition), addressed in _by_address(job, members):
        if partition is None:
            for member in addressed:
                yield _plain(job, member, topic)
            continue
        for part in _parts(job, addressed, batch_bytes_max):
            value = encode_replies(job.batch, part, job.outputs, facts)
            yield ReplyRecord(tuple(part), topic, partition, None, HEADERS, value)


def _by_address(
    job: Job, members: Sequence[int]
) -> Iterable[tuple[ReplyAddress, Sequence[int]]]:
    addresses = job.batch.addresses
    first = addresses[members[0]] if members else None
    if first is not None and addresses.count(first) == len(members) == len(addresses):
        return [(first, members)]
    found: dict[ReplyAddress, list[int]] = {}
    for member in members:
        address = addresses[member]
        if address is not None:
            found.setdefault(address, []).append(member)
    return found.items()


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
    bounds = (0,) * (job.members + 1)
    outputs = [each._replace(contents=b"", bounds=bounds) for each in job.outputs]
    value = encode_replies(job.batch, [member], outputs, facts, {0: payload})
    return ReplyRecord((member,), topic, partition, None, HEADERS, value)


def _parts(job: Job, members: Sequence[int], bytes_max: int) -> Iterator[Sequence[int]]:
    """Members in order, as many at a time as fit a record."""
    if job.output_bytes <= bytes_max:
        yield members
        return
    part: list[int] = []
    total = 0
    for member in members:
        size = job.reply_bytes(member)
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
