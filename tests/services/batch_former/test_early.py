"""A request for a version of which its sender heard before we did."""

from __future__ import annotations

from headrace.broker import Record
from headrace.domain import Reason, RequestRejected, Source
from headrace.wire import headers as names
from services.batch_former.early import HOLD_US, RECORDS_MAX, EarlyRequests

TOPIC = "p.requests.m"
KEY = (TOPIC, 2)
NOW_US = 50_000_000


def a_record(offset: int, *, age_us: int = 0, source: bytes = b"headrace/x") -> Record:
    headers: list[tuple[str, bytes | None]] = [(names.CE_SOURCE, source)]
    return Record(TOPIC, 2, offset, NOW_US - age_us, None, b"", headers)


def unknown(record: Record, reason: Reason = Reason.MODEL_UNKNOWN) -> RequestRejected:
    source = Source(record.topic, record.partition, record.offset)
    return RequestRejected(source, "id", "t", "m", None, reason, "no such version")


def test_it_holds_its_partition_until_models_change() -> None:
    early = EarlyRequests(lambda log_us: log_us)
    first, second = (a_record(0), 1), (a_record(1), 1)

    assert early.holds(unknown(first[0]), KEY, first, NOW_US)
    assert early.is_held(KEY, second)
    assert not early.is_held((TOPIC, 3), second)
    assert early.release(NOW_US + HOLD_US - 1) == []
    assert early.release(NOW_US + 1, models_changed=True) == [first, second]
    assert not early.is_held(KEY, second)


def test_it_is_taken_as_it_is_when_nothing_changes() -> None:
    early = EarlyRequests(lambda log_us: log_us)
    first = (a_record(0), 1)
    assert early.holds(unknown(first[0]), KEY, first, NOW_US)

    late_us = NOW_US + HOLD_US + 1
    assert early.release(late_us) == [first]
    assert not early.holds(unknown(first[0]), KEY, first, late_us)


def test_only_what_an_ingress_sent_just_now_can_be_early() -> None:
    early = EarlyRequests(lambda log_us: log_us)
    foreign = (a_record(0, source=b"somebody"), 1)
    old = (a_record(0, age_us=HOLD_US + 1), 1)
    broken = (a_record(0), 1)

    assert not early.holds(unknown(foreign[0]), KEY, foreign, NOW_US)
    assert not early.holds(unknown(old[0]), KEY, old, NOW_US)
    rejected = unknown(broken[0], Reason.UNDECODABLE)
    assert not early.holds(rejected, KEY, broken, NOW_US)


def test_a_long_queue_is_held_no_longer() -> None:
    early = EarlyRequests(lambda log_us: log_us)
    first = (a_record(0), 1)
    assert early.holds(unknown(first[0]), KEY, first, NOW_US)

    for offset in range(1, RECORDS_MAX):
        assert early.release(NOW_US) == []
        assert early.is_held(KEY, (a_record(offset), 1))

    assert len(early.release(NOW_US)) == RECORDS_MAX
