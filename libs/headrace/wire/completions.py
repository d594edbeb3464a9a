"""What a worker says of batches, between it and the lane's former."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from google.protobuf.message import DecodeError

from headrace.domain import (
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    Left,
    MemberStatus,
    Refused,
    Reported,
    StaleWritten,
)
from headrace.errors import UndecodableRecord
from headrace.wire._generated import headrace_pb2 as pb
from headrace.wire.columns import SourceTable, collapsed, expanded, sources_of
from headrace.wire.headers import check_schema
from headrace.wire.records import Record

__all__ = ["decode_completion", "encode_completion", "encode_done"]

_STATUSES = {
    MemberStatus.OK: pb.OK,
    MemberStatus.UNACKED: pb.UNACKED,
    MemberStatus.RETRY: pb.RETRY,
    MemberStatus.FINAL: pb.FINAL,
}
_BY_NUMBER = {number: status for status, number in _STATUSES.items()}

DRAINING = "draining"
STAGE_US_MAX = 86_400_000_000
"""A stage that took longer counts as so long, one that took less than nothing as
nothing: the batch has ended all the same."""


def encode_completion(completion: Completion) -> bytes:
    match completion:
        case Joined(slot, previous_exit, pid, host):
            join = pb.Join(slot=slot, previous_exit=previous_exit, pid=pid, host=host)
            message = pb.Completion(join=join)
        case Reported():
            message = pb.Completion(report=_report(completion))
        case Done():
            members = completion.members
            sources = SourceTable(member.source for member in members)
            ids = [member.id for member in members]
            done = _done(completion, sources, ids, members)
            message = pb.Completion(done=done)
        case Refused():
            refused = pb.Refused(
                batch=bytes.fromhex(completion.batch),
                k=completion.k,
                slot=completion.slot,
                incarnation=completion.incarnation,
                reason=completion.reason,
                epoch_seen=completion.epoch_seen,
            )
            message = pb.Completion(refused=refused)
        case Left(slot, incarnation):
            message = pb.Completion(leave=pb.Leave(slot=slot, incarnation=incarnation))
        case StaleWritten(topic, partition, ranges):
            stale = pb.Stale(
                topic=topic,
                partition=partition,
                ranges=[
                    pb.OffsetRange(first=first, last=last) for first, last in ranges
                ],
            )
            message = pb.Completion(stale=stale)
        case _:
            assert_never(completion)
    return message.SerializeToString()


class _Ending(Protocol):
    """What became of a member."""

    @property
    def status(self) -> MemberStatus: ...
    @property
    def reason(self) -> str: ...
    @property
    def text(self) -> str: ...


def encode_done(
    done: Done, sources: SourceTable, ids: Sequence[str], endings: Sequence[_Ending]
) -> bytes:
    """As :func:`encode_completion`, for a done whose members stand in columns in place
    of ``members``; ``endings``: one for all of them, or one each."""
    message = pb.Completion(done=_done(done, sources, ids, endings))
    return message.SerializeToString()


def decode_completion(record: Record) -> Completion:
    """Raises :class:`headrace.errors.UndecodableRecord`."""
    check_schema(dict(record.headers))
    try:
        message = pb.Completion.FromString(record.value or b"")
        return _completion(message)
    except (DecodeError, ValueError, IndexError, KeyError) as error:
        raise UndecodableRecord(f"not a completion: {error}") from error


def _report(reported: Reported) -> pb.Report:
    message = pb.Report(
        slot=reported.slot,
        incarnation=reported.incarnation,
        epoch=reported.epoch,
        former=bytes.fromhex(reported.former),
        k=reported.k,
        state=DRAINING if reported.draining else "ready",
        models=sorted(reported.models),
    )
    for held in reported.held:
        members = SourceTable(held.members)
        message.held.add(
            batch=bytes.fromhex(held.batch),
            sources=members.table,
            source_index=members.places,
            offsets=members.offsets,
        )
    return message


def _done(
    done: Done, sources: SourceTable, ids: Sequence[str], endings: Sequence[_Ending]
) -> pb.Done:
    statuses = collapsed([each.status for each in endings])
    return pb.Done(
        batch=bytes.fromhex(done.batch),
        slot=done.slot,
        incarnation=done.incarnation,
        rows=done.rows,
        wait_us=done.wait_us,
        input_us=done.input_us,
        run_us=done.run_us,
        output_us=done.output_us,
        sources=sources.table,
        source_index=sources.places,
        offsets=sources.offsets,
        ids=ids,
        status=[_STATUSES[status] for status in statuses],
        reason=collapsed([each.reason for each in endings]),
        text=collapsed([each.text for each in endings]),
        model=done.model,
        version=done.version,
        order=done.order,
    )


def _completion(message: pb.Completion) -> Completion:
    match message.WhichOneof("completion"):
        case "join":
            join = message.join
            return Joined(join.slot, join.previous_exit, join.pid, join.host)
        case "report":
            return _reported(message.report)
        case "done":
            return _ended(message.done)
        case "refused":
            refused = message.refused
            return Refused(
                batch=refused.batch.hex(),
                k=refused.k,
                slot=refused.slot,
                incarnation=refused.incarnation,
                reason=refused.reason,
                epoch_seen=refused.epoch_seen,
            )
        case "leave":
            return Left(message.leave.slot, message.leave.incarnation)
        case "stale":
            stale = message.stale
            ranges = tuple((each.first, each.last) for each in stale.ranges)
            return StaleWritten(stale.topic, stale.partition, ranges)
        case _:
            raise ValueError("empty")


def _reported(report: pb.Report) -> Reported:
    return Reported(
        slot=report.slot,
        incarnation=report.incarnation,
        epoch=report.epoch,
        former=report.former.hex(),
        k=report.k,
        draining=report.state == DRAINING,
        models=frozenset(report.models),
        held=tuple(
            HeldBatch(held.batch.hex(), tuple(sources_of(held))) for held in report.held
        ),
    )


def _stage_us(us: int) -> int:
    return min(max(us, 0), STAGE_US_MAX)


def _ended(done: pb.Done) -> Done:
    sources = sources_of(done)
    count = len(sources)
    columns = zip(
        sources,
        done.ids,
        expanded(done.status, count),
        expanded(done.reason, count),
        expanded(done.text, count),
        strict=True,
    )
    return Done(
        batch=done.batch.hex(),
        slot=done.slot,
        incarnation=done.incarnation,
        rows=done.rows,
        wait_us=_stage_us(done.wait_us),
        run_us=_stage_us(done.run_us),
        members=tuple(
            DoneMember(source, id_, _BY_NUMBER[status], reason, text)
            for source, id_, status, reason, text in columns
        ),
        input_us=_stage_us(done.input_us),
        output_us=_stage_us(done.output_us),
        model=done.model,
        version=done.version,
        order=done.order,
    )
