"""Audits of a real log, with every kind of fault written into it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.audit import AuditLimits, Kind, Report, reading
from headrace.broker import TopicPartition
from headrace.domain import Priority, ReplyAddress, Source
from headrace.payloads import PayloadStore
from headrace.wire import Outgoing
from tests.audit.cluster import MODEL, Cluster

pytestmark = pytest.mark.kafka

SHORT_MS = 200
TIME_MS = 500
"""In which a request of so little time, and the grace after it, is over."""


@pytest.fixture
def cluster(kafka: str, prefix: str) -> Iterator[Cluster]:
    cluster = Cluster(kafka, prefix)
    yield cluster
    cluster.close()


def found(report: Report) -> dict[Kind, list[str]]:
    by_kind: dict[Kind, list[str]] = {}
    for finding in report.findings:
        by_kind.setdefault(finding.kind, []).append(finding.id)
    return by_kind


def test_a_history_without_faults_is_clean(cluster: Cluster) -> None:
    asked = {each: cluster.ask(each) for each in ("ok", "refused", "stale", "poison")}
    cluster.answer("ok")
    cluster.done("ok", asked["ok"])
    cluster.refuse("refused", asked["refused"])
    cluster.stale(asked["stale"])
    cluster.bury("poison", asked["poison"])
    item = cluster.ask(
        "item", priority=Priority.BULK, limit_ms=None, reply_to=cluster.job
    )
    cluster.result("item", item)
    gone = ReplyAddress(cluster.topics.results("replay", "ended"), None)
    cluster.ask("again", priority=Priority.BULK, limit_ms=None, reply_to=gone)
    cluster.pass_time(60)
    cluster.commit(asked["poison"])
    cluster.commit(item)
    cluster.pass_time(TIME_MS)

    report = cluster.audit()

    assert report.is_clean, report
    counts = report.counts
    assert (counts.requests, counts.successes, counts.stale) == (6, 2, 1)
    assert counts.answers_gone == 1
    assert counts.refusals == {"expired": 1}
    assert counts.dead_letters == {"poison": 1}
    assert (counts.commits, counts.unknown, counts.pending) == (2, 0, 0)
    assert report.warnings == []


def test_every_kind_of_fault_is_found_with_its_id(cluster: Cluster) -> None:
    lost = cluster.ask("lost", limit_ms=SHORT_MS)
    cluster.done("lost", lost)
    elsewhere = cluster.ask("elsewhere", limit_ms=SHORT_MS)
    cluster.answer("elsewhere", partition=1)
    cluster.ask("two")
    cluster.answer("two", value=1.0)
    cluster.answer("two", value=2.0)
    cluster.ask("rounded")
    cluster.answer("rounded", value=1.0)
    cluster.answer("rounded", value=1.000001)
    both = cluster.ask("both")
    cluster.refuse("both", both)
    cluster.answer("both")
    cluster.ask("late", limit_ms=SHORT_MS)
    cluster.beat(1)
    other = ReplyAddress(cluster.address.topic, 1)
    cluster.ask("overtaken", limit_ms=SHORT_MS, reply_to=other)
    early = cluster.ask("early")
    cluster.commit(early, epoch=7)
    cluster.pass_time(TIME_MS)
    cluster.answer("late", "early")
    cluster.beat(1)
    cluster.answer("overtaken", partition=1)
    cluster.commit(early, above=0)

    report = cluster.audit()

    assert found(report) == {
        Kind.UNANSWERED: ["lost", "elsewhere"],
        Kind.DIFFERING: ["two"],
        Kind.LATE: ["both", "late"],
        # Whatever lies below the offset, settled later or never.
        Kind.COMMITTED_PAST: ["lost", "elsewhere", "late", "overtaken", "early"],
    }
    assert report.counts.overtaken == 1
    assert (report.counts.rounded, report.counts.duplicates) == (1, 3)
    assert report.counts.commits_back == 1
    past = [each for each in report.findings if each.kind is Kind.COMMITTED_PAST]
    assert past[-1].source == early
    assert "1;e=7;c=0;n=0" in past[-1].text
    assert "went back" in report.warnings[0]
    (one, _) = [each for each in report.findings if each.kind is Kind.UNANSWERED]
    assert "a worker says that it answered" in one.text
    assert elsewhere.offset == lost.offset + 1


def test_answers_in_the_payload_store_are_held_against_each_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    store = PayloadStore(f"file://{tmp_path}")
    for name, values in {
        "same": (1.0, 1.0),
        "two": (1.0, 2.0),
        "rounded": (1.0, 1.000001),
    }.items():
        cluster.ask(name)
        for value in values:
            cluster.answer(name, value=value, store=store)

    report = cluster.audit(store=store)
    assert found(report) == {Kind.DIFFERING: ["two"]}
    assert (report.counts.rounded, report.counts.duplicates) == (1, 3)
    assert report.warnings == []

    # Without the store what differs cannot be excused.
    report = cluster.audit()
    assert found(report) == {Kind.DIFFERING: ["two", "rounded"]}
    assert "HEADRACE_BUS__PAYLOAD_STORE" in report.warnings[0]


def test_a_result_that_names_no_record_is_held_against_that_of_its_id(
    cluster: Cluster,
) -> None:
    """Whoever reads the topic takes it for one by its id."""
    for name, value in {"differs": 2.0, "rounded": 1.000001}.items():
        asked = cluster.ask(
            name, priority=Priority.BULK, limit_ms=None, reply_to=cluster.job
        )
        cluster.result(name, asked)
        cluster.result(name, asked._replace(offset=999_999), value)

    report = cluster.audit()

    assert found(report) == {Kind.DIFFERING: ["differs"]}
    assert (report.counts.rounded, report.counts.unknown) == (1, 2)


def test_what_has_time_left_is_pending(cluster: Cluster) -> None:
    cluster.ask("online")
    cluster.ask("item", priority=Priority.BULK, limit_ms=None, reply_to=cluster.job)

    report = cluster.audit()

    assert report.is_clean
    assert report.counts.pending == 2


def test_a_range_and_a_model_are_all_that_is_judged(cluster: Cluster) -> None:
    cluster.ask("before", limit_ms=SHORT_MS)
    cluster.pass_time(100)
    from_us = cluster.last_us
    cluster.ask("within", limit_ms=SHORT_MS)
    cluster.ask("other", model="other", limit_ms=SHORT_MS)
    cluster.pass_time(100)
    to_us = cluster.last_us
    cluster.ask("after", limit_ms=SHORT_MS)
    cluster.pass_time(TIME_MS)

    cluster.commit(Source(cluster.topics.requests("other"), 2, 0), above=0)

    report = cluster.audit(from_us, to_us, [MODEL])
    assert found(report) == {Kind.UNANSWERED: ["within"]}
    assert report.counts.commits == 0
    assert (report.from_us, report.to_us) == (from_us, to_us)
    report = cluster.audit(from_us, to_us)
    assert found(report) == {Kind.UNANSWERED: ["within", "other"]}


def test_evidence_is_read_beyond_the_range(cluster: Cluster) -> None:
    cluster.ask("slow")
    cluster.pass_time(50)
    to_us = cluster.last_us
    cluster.pass_time(TIME_MS)
    cluster.answer("slow")

    report = cluster.audit(0, to_us)

    assert report.is_clean
    assert report.counts.successes == 1


def test_what_cannot_be_read_is_a_request_that_must_end_all_the_same(
    cluster: Cluster,
) -> None:
    topic = cluster.topics.requests(MODEL)
    ended = cluster.write(topic, 2, Outgoing(None, (("inf-schema", b"9"),), None))
    cluster.bury("", ended)
    open_ = cluster.write(topic, 2, Outgoing(None, (("inf-deadline", b"x"),), b"?"))
    # Such a record has the time limit of its model.
    cluster.announce(limit_ms=SHORT_MS)
    cluster.pass_time(TIME_MS)

    report = cluster.audit()

    assert [each.source for each in report.findings] == [open_]


def test_evidence_that_cannot_be_read_is_a_warning(cluster: Cluster) -> None:
    cluster.ask("one")
    cluster.answer("one")
    cluster.write(cluster.topics.replies, 0, Outgoing(None, (), b"?"))
    cluster.write(cluster.topics.completions, 0, Outgoing(None, (), b"?"))

    report = cluster.audit()

    assert report.is_clean
    assert {each for each in report.warnings if each.startswith("1 records")} == {
        f"1 records of {cluster.topics.replies} cannot be read",
        f"1 records of {cluster.topics.completions} cannot be read",
    }


def test_a_range_that_retention_has_cut_says_so_and_accuses_nobody(
    cluster: Cluster,
) -> None:
    cluster.ask("gone")
    cluster.answer("gone")
    cluster.pass_time(20)
    cluster.ask("kept")
    cluster.answer("kept")
    cluster.pass_time(TIME_MS)
    cluster.cut(TopicPartition(cluster.topics.replies, 0), 1)

    report = cluster.audit()

    assert report.is_clean
    assert (report.counts.unjudged, report.counts.successes) == (1, 1)
    (warning,) = report.warnings
    assert f"{cluster.topics.replies} is whole only since" in warning


def test_a_backlog_beyond_the_limit_ends_the_range(cluster: Cluster) -> None:
    for number in range(4):
        cluster.ask(f"r{number}")

    report = cluster.audit(limits=AuditLimits(unsettled_max=3))

    assert report.is_truncated
    assert not report.is_clean
    assert report.counts.requests == 3
    assert "unsettled_max" in report.warnings[0]


def test_an_installation_that_is_not_there_is_clean(cluster: Cluster) -> None:
    report = cluster.audit()
    assert report.is_clean
    assert report.counts.requests == 0


def test_without_the_coordinators_log_present_offsets_are_held_against_the_evidence(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "COMMITS_TOPIC", "not.for.you")
    answered, open_ = cluster.ask("answered"), cluster.ask("open")
    cluster.commit(open_)
    cluster.pass_time(200)
    cluster.answer("answered")

    report = cluster.audit()

    # When the commit was made nobody knows any more; now "answered" has its end.
    assert found(report) == {Kind.COMMITTED_PAST: ["open"]}
    assert "only the offsets committed at the start" in report.warnings[0]
    assert answered.offset < open_.offset
