"""An audit of a cluster: reads what the range needs, once, and judges it.

It writes nothing, joins no group, and works while the platform runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from headrace.audit.decoding import EventDecoder
from headrace.audit.events import Claimed, Committed, Event, Resulted
from headrace.audit.joining import Audit
from headrace.audit.limits import AuditLimits
from headrace.audit.report import Finding, Report, Suspect
from headrace.broker import (
    COMMITS_TOPIC,
    History,
    KafkaAdmin,
    KafkaConnection,
    TopicPartition,
    commits_partition,
    group_depth,
    records_at,
    records_since,
)
from headrace.comparison import are_equal_but_for_rounding
from headrace.domain import Source, Tensor
from headrace.errors import PayloadLost, StoreUnavailable, UndecodableRecord
from headrace.payloads import PayloadStore
from headrace.wire import (
    Announcement,
    Heartbeat,
    Record,
    Role,
    TopicKind,
    Topics,
    decode_json,
    decode_plain_reply,
    decode_replies,
)
from headrace.wire.payloads import tensors_from
from headrace.wire.plain import PlainReply
from headrace.wire.replies import Answer

__all__ = ["AuditRange", "audit_log"]

CLOCK_US_MAX = 60_000_000
"""The auditor's own clock counts only for what it is certain to have seen pass: where
nobody writes any more, log time has gone on to this long before its own now."""

SETTLE_US = 1_000_000
"""Read on for so long after the last request of a range has its end."""

TIMEOUT_S = 15.0

_EVIDENCE = frozenset(
    {
        TopicKind.COMPLETIONS,
        TopicKind.REPLIES,
        TopicKind.RESULTS,
        TopicKind.DEAD_LETTERS,
    }
)
_INGRESS = f"{Role.INGRESS}/".encode()
_ADDRESSES = frozenset({TopicKind.REPLIES, TopicKind.RESULTS})


Progress = Callable[[int, int], None]
Wanted = Callable[[TopicPartition], bool]


class AuditRange(NamedTuple):
    """Requests appended from ``from_us`` to before ``to_us`` (None: now), of these
    models (none: of all)."""

    from_us: int
    to_us: int | None
    models: frozenset[str]


def audit_log(  # noqa: PLR0913 - what it reads from
    connection: KafkaConnection,
    topics: Topics,
    wanted: AuditRange,
    *,
    now_us: int,
    store: PayloadStore | None = None,
    limits: AuditLimits = AuditLimits(),  # noqa: B008 - immutable
    progress: Progress | None = None,
) -> Report:
    """Judge the requests of a range; ``topics`` counts for its prefix alone.
    ``now_us`` is epoch microseconds; ``store`` has the answers that no record holds;
    ``progress`` is told how many records are read, of how many.

    Raises :class:`headrace.errors.BusError`.
    """
    # Offsets are looked up before the ends of the log: what they rest on lies before.
    there = KafkaAdmin(connection).topics(TIMEOUT_S)
    groups = [one for one in there if topics.kind_of(one) is TopicKind.LANES]
    present = (
        [] if COMMITS_TOPIC in there else _present_commits(connection, topics, groups)
    )
    decoder = EventDecoder(
        topics,
        timeouts_us=_timeouts(connection, topics),
        groups=groups,
        there=there,
    )
    judge = Audit(wanted.from_us, wanted.to_us, limits)
    is_wanted = _chosen(topics, wanted.models, there, groups)
    history = History(connection, is_wanted, wanted.from_us, timeout_s=TIMEOUT_S)
    try:
        reading = _Reading(topics, wanted, decoder, judge, history, is_wanted)
        read_to_us = reading.run(progress, now_us)
    finally:
        history.close()
    if COMMITS_TOPIC not in there:
        judge.warn(
            f"{COMMITS_TOPIC} is not readable here: only the offsets committed at the "
            "start of the audit were held against the evidence"
        )
    for commit in present:
        judge.take(msgspec.structs.replace(commit, at_us=read_to_us))
    judge.read_all()
    excused = _excused(connection, judge.suspects, _Stored(store, judge.warn))
    return judge.finish(read_to_us, excused)


class _Reading:
    """One pass over the log."""

    def __init__(
        self,
        topics: Topics,
        wanted: AuditRange,
        decoder: EventDecoder,
        judge: Audit,
        history: History,
        is_wanted: Wanted,
    ) -> None:
        self._is_wanted = is_wanted
        self._topics = topics
        self._wanted = wanted
        self._decoder = decoder
        self._judge = judge
        self._history = history
        self._begins = {one for one, extent in history.extents.items() if extent.is_cut}
        self._cuts: dict[str, int] = {}
        self._undecodable = Counter[str]()

    def run(self, progress: Progress | None, now_us: int) -> int:
        """Read to the end, or until the range is settled; how far, in log time."""
        history, to_us = self._history, self._wanted.to_us
        total, done, newest_us = history.records, 0, self._wanted.from_us
        while (reached_us := history.read_to_us) is not None:
            records = history.read()
            for record in records:
                self._take(record)
                newest_us = max(newest_us, record.timestamp_us)
            done += len(records)
            if progress is not None:
                progress(done, total)
            self._judge.read_to(reached_us)
            is_past = to_us is not None and reached_us > to_us + SETTLE_US
            if is_past and not self._judge.unsettled:
                break
        self._tell()
        if reached_us is not None:
            return reached_us
        return max(newest_us, now_us - CLOCK_US_MAX)

    def _take(self, record: Record) -> None:
        if self._topics.kind_of(record.topic) is TopicKind.STATUS:
            self._hear(record)
            return
        partition = TopicPartition(record.topic, record.partition)
        if partition in self._begins:
            self._begins.remove(partition)
            self._cut(partition, record.timestamp_us)
        try:
            event = self._decoder.decode(record)
        except UndecodableRecord as error:
            if not self._undecodable[record.topic]:
                place = f"{record.topic} [{record.partition}] {record.offset}"
                self._judge.warn(f"{place} cannot be read: {error}")
            self._undecodable[record.topic] += 1
            return
        if isinstance(event, Committed) and not self._is_wanted(
            TopicPartition(event.topic, event.partition)
        ):
            return
        if event is not None:
            self._judge.take(self._told_apart(event))

    def _told_apart(self, event: Event) -> Event:
        """A success that names no record that was ever asked can only be held against
        others by its id."""
        if (
            not isinstance(event, Resulted)
            or event.digest is None
            or not self._is_nowhere(event.source)
        ):
            return event
        return Claimed(event.place, event.at_us, event.id, event.digest)

    def _is_nowhere(self, source: Source) -> bool:
        if self._topics.kind_of(source.topic) is not TopicKind.REQUESTS:
            return True
        extent = self._history.extents.get(TopicPartition(*source[:2]))
        return extent is not None and source.offset >= extent.end

    def _hear(self, record: Record) -> None:
        if not (record.key or b"").startswith(_INGRESS):
            self._judge.heard(record.timestamp_us, None)
            return
        try:
            heartbeat = decode_json(Heartbeat, record)
        except UndecodableRecord:
            return  # whoever it was
        self._judge.heard(record.timestamp_us, heartbeat.slot, heartbeat.instance)

    def _cut(self, partition: TopicPartition, begins_us: int) -> None:
        kind = self._topics.kind_of(partition.topic)
        if kind in _EVIDENCE:
            self._judge.cut(partition, begins_us, is_address=kind in _ADDRESSES)
        if kind in _EVIDENCE or kind is TopicKind.REQUESTS:
            earlier_us = self._cuts.get(partition.topic, 0)
            self._cuts[partition.topic] = max(earlier_us, begins_us)

    def _tell(self) -> None:
        for topic, begins_us in self._cuts.items():
            begins = datetime.fromtimestamp(begins_us / 1e6, UTC)
            self._judge.warn(
                f"retention has cut the range: {topic} is whole only since "
                f"{begins.isoformat(timespec='milliseconds')}"
            )
        for topic, count in self._undecodable.items():
            self._judge.warn(f"{count} records of {topic} cannot be read")


def _chosen(
    topics: Topics, models: Collection[str], there: Mapping[str, int], groups: list[str]
) -> Wanted:
    chosen = {COMMITS_TOPIC: set[int]()}
    if COMMITS_TOPIC in there:
        count = there[COMMITS_TOPIC]
        chosen[COMMITS_TOPIC] = {commits_partition(group, count) for group in groups}

    def is_wanted(partition: TopicPartition) -> bool:
        topic, number = partition
        if topic == COMMITS_TOPIC:
            return number in chosen[COMMITS_TOPIC]
        kind = topics.kind_of(topic)
        if models and kind is TopicKind.REQUESTS:
            return topics.model_of(topic) in models
        if models and kind is TopicKind.DEAD_LETTERS:
            return topic in map(topics.dead_letters, models)
        # The heartbeats tell how far log time has come.
        return kind in _EVIDENCE or kind in {TopicKind.REQUESTS, TopicKind.STATUS}

    return is_wanted


def _timeouts(connection: KafkaConnection, topics: Topics) -> dict[str, int]:
    """The longest time limit that a model was announced with."""
    found: dict[str, int] = {}
    for record in records_since(
        connection, lambda one: one.topic == topics.control_models
    ):
        try:
            announced = decode_json(Announcement, record)
        except UndecodableRecord:
            continue
        limit_us = round((announced.latency_objective_ms or 0) * 1000)
        if limit_us > found.get(announced.model, 0):
            found[announced.model] = limit_us
    return found


def _present_commits(
    connection: KafkaConnection, topics: Topics, groups: Iterable[str]
) -> list[Committed]:
    found = []
    for group in groups:
        depths = group_depth(
            connection,
            group,
            lambda topic: topics.kind_of(topic) is TopicKind.REQUESTS,
            TIMEOUT_S,
        )
        found += [
            Committed(
                place=Source(f"the offsets of {group}", 0, number),
                at_us=0,
                topic=topic,
                partition=partition,
                offset=depth.committed,
                metadata="",
            )
            for number, ((topic, partition), depth) in enumerate(depths.items())
            if depth.committed is not None
        ]
    return found


class _Stored:
    """Answers whose data are in the payload store."""

    def __init__(self, store: PayloadStore | None, warn: Callable[[str], None]) -> None:
        self._store = store
        self._warn = warn

    def outputs(self, answer: Answer | PlainReply) -> Sequence[Tensor] | None:
        """None: its data cannot be had, of which there is a warning."""
        if answer.payload is None:
            return answer.outputs
        if self._store is None:
            self._warn(
                "answers that differ are in a payload store, and none is set here "
                "(HEADRACE_BUS__PAYLOAD_STORE): they were not compared"
            )
            return None
        try:
            content = self._store.read(answer.payload)
            return tensors_from(answer.payload, answer.outputs, content)
        except (PayloadLost, StoreUnavailable, ValueError) as error:
            self._warn(f"of two answers one was not compared: {error}")
            return None


def _excused(
    connection: KafkaConnection, suspects: Sequence[Suspect], stored: _Stored
) -> list[Suspect]:
    """Those whose two answers, read once more, differ by rounding alone."""
    places = [place for each in suspects for place in (each.first, each.second)]
    records = records_at(connection, places)
    excused = []
    for suspect in suspects:
        first = _outputs(records.get(suspect.first), suspect.finding, stored)
        second = _outputs(records.get(suspect.second), suspect.finding, stored)
        if first is None or second is None:
            continue
        if are_equal_but_for_rounding(first, second):
            excused.append(suspect)
    return excused


def _outputs(
    record: Record | None, finding: Finding, stored: _Stored
) -> Sequence[Tensor] | None:
    """What the record answers to the finding's id; None: it is gone."""
    if record is None:
        return None
    replies = decode_replies(record)
    if replies is None:
        return stored.outputs(decode_plain_reply(record))
    for answer in replies.answers:
        if (answer.id, answer.tenant) == (finding.id, finding.tenant):
            return stored.outputs(answer)
    return None
