"""Which records are a lane's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from headrace.broker import Record
from headrace.clock import SystemClock
from headrace.delivery import Lane
from headrace.delivery.decisions import Decision
from headrace.delivery.events import ClaimSeen, Completed, Event
from headrace.domain import HopsMeasured, Left, RequestRead, RequestRejected
from headrace.registry import Catalog
from headrace.scheduling import BatchFormer, SchedulingSettings
from headrace.telemetry import FormerMetrics, MetricsRegistry, ProcessMetrics
from headrace.wire import (
    Claim,
    Heartbeat,
    RequestDecoder,
    Role,
    ServiceState,
    Topics,
    encode_completion,
    encode_json,
)
from services.batch_former.acting import Acting
from services.batch_former.early import EarlyRequests
from services.batch_former.inbox import Channel
from services.batch_former.intake import HEIR_US, TWIN_US, Intake
from services.batch_former.lanes import Lanes, OwnedLane, Route
from services.batch_former.measuring import Measuring
from services.batch_former.messages import ReadBatch, StatusRead
from tests.scheduling.scenes import a_request

TOPICS = Topics("p")
FORMER = "ab" * 16


class Listening:
    """In place of a lane's decisions: what it is told."""

    def __init__(self) -> None:
        self.told: list[Event] = []

    def handle(self, event: Event, now_us: int) -> list[Decision]:
        del now_us
        self.told.append(event)
        return []


class Telling:
    """In place of what carries decisions out: there are none."""

    def tell(self, owned: OwnedLane, event: Event, now_us: int) -> None:
        assert owned.core.handle(event, now_us) == []

    def tell_each(self, owned: OwnedLane, events: Sequence[Event], now_us: int) -> None:
        for event in events:
            self.tell(owned, event, now_us)

    def tell_all(self, event: Event, now_us: int) -> None: ...

    def warm(self, batch: ReadBatch, now_us: int) -> None: ...


class Reading:
    """In place of a decoder: whatever the record is, this request."""

    def decode(self, record: Record) -> RequestRead:
        del record
        return RequestRead(a_request())


class Scene:
    """One lane, number 0, and an intake that tells it."""

    def __init__(self, decoding: Reading | None = None) -> None:
        self.core = Listening()
        scheduler = BatchFormer(SchedulingSettings(), batch_ids=iter(()))
        self.owned = OwnedLane(0, 1, cast(Lane, self.core), scheduler, taken_us=0)
        self.lanes = Lanes()
        self.lanes.owned[0] = self.owned
        registry = MetricsRegistry()
        catalog = Catalog()
        decoder = RequestDecoder(
            TOPICS,
            version_of=catalog.lookup,
            partitions_of=lambda _: 1,
            to_mono=lambda log_us: log_us,
        )
        self.intake = Intake(
            TOPICS,
            self.lanes,
            cast(Acting, Telling()),
            catalog,
            decoder=cast(RequestDecoder, decoding) if decoding else decoder,
            early=EarlyRequests(lambda log_us: log_us),
            measuring=Measuring(
                TOPICS,
                FormerMetrics(registry),
                ProcessMetrics(registry),
                HopsMeasured(0, 0),
                catalog.rows_max,
            ),
            slot=0,
            former=FORMER,
        )

    def reads_heartbeats(self, *heard: tuple[int, int, str, ServiceState]) -> None:
        """Each of them: log time, slot, uuid and state of a former."""
        records = [
            Record(
                TOPICS.status,
                0,
                offset,
                log_us,
                None,
                encode_json(Heartbeat(Role.BATCH_FORMER, slot, uuid, state)),
                [],
            )
            for offset, (log_us, slot, uuid, state) in enumerate(heard)
        ]
        self.intake.take(StatusRead(records), 0)

    def reads_requests(self, *offsets: int, change: int, partition: int = 2) -> None:
        topic = TOPICS.requests("m")
        records = [
            Record(topic, partition, offset, 0, None, b"", []) for offset in offsets
        ]
        batch = ReadBatch(Channel.STANDARD, records, change)
        self.intake.take_requests(batch, SystemClock().now_us())

    def reads_completions(self, *records: Record, change: int) -> None:
        batch = ReadBatch(Channel.COMPLETIONS, list(records), change)
        self.intake.take_completions(batch, 0)

    def offsets(self) -> list[int]:
        return [
            event.source.offset
            for event in self.core.told
            if isinstance(event, RequestRejected)
        ]


def a_completion(offset: int, lane: int = 0) -> Record:
    return Record(
        TOPICS.completions, lane, offset, 0, None, encode_completion(Left(0, 1)), []
    )


def a_claim(offset: int, former: str) -> Record:
    claim = encode_json(Claim("i", former, "h", 1, 0))
    return Record(TOPICS.lanes, 0, offset, 0, None, claim, [])


S = 1_000_000
READY, DRAINING = ServiceState.READY, ServiceState.DRAINING
OTHER = "cd" * 16


@pytest.mark.parametrize(
    ("heard", "has_twin"),
    [
        ([(1 * S, 0, FORMER, READY)], False),
        ([(1 * S, 0, OTHER, READY), (1 * S, 0, FORMER, READY)], False),
        ([(1 * S, 0, FORMER, READY), (1 * S, 0, OTHER, READY)], True),
        ([(1 * S, 0, FORMER, READY), (1 * S, 1, OTHER, READY)], False),
        (
            [
                (1 * S, 0, FORMER, READY),
                (1 * S, 0, OTHER, READY),
                (1 * S + TWIN_US, 0, FORMER, READY),
            ],
            False,
        ),
    ],
    ids=["alone", "a predecessor", "a twin", "another slot", "a twin that is dead"],
)
def test_a_twin_is_who_beats_beside_us(
    heard: list[tuple[int, int, str, ServiceState]], *, has_twin: bool
) -> None:
    scene = Scene()
    scene.reads_heartbeats(*heard)
    assert scene.intake.has_twin is has_twin


@pytest.mark.parametrize(
    ("heard", "has_heir"),
    [
        ([(1 * S, 0, FORMER, READY)], False),
        ([(1 * S, 1, OTHER, READY)], True),
        ([(1 * S, 1, OTHER, READY), (2 * S, 1, OTHER, DRAINING)], False),
        ([(1 * S, 1, OTHER, READY), (1 * S + HEIR_US, 0, FORMER, READY)], False),
    ],
    ids=["alone", "another slot", "who drains", "who is silent"],
)
def test_an_heir_is_another_former_that_lives_and_stays(
    heard: list[tuple[int, int, str, ServiceState]], *, has_heir: bool
) -> None:
    scene = Scene()
    scene.reads_heartbeats(*heard)
    assert scene.intake.has_heir is has_heir


def test_requests_from_before_the_reader_moved_are_dropped() -> None:
    scene = Scene()
    scene.lanes.routes[TOPICS.requests("m"), 2] = Route(scene.owned, 5)

    scene.reads_requests(1, 2, change=4)
    scene.reads_requests(8, 9, change=5)
    scene.reads_requests(10, change=5, partition=1)

    assert scene.offsets() == [8, 9]


def test_a_request_may_be_the_last_that_a_lane_hears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be told that its time is over by any event."""
    scene = Scene(Reading())
    topic = TOPICS.requests("m")
    scene.lanes.routes[topic, 2] = Route(scene.owned, 1)

    def end(event: Event, now_us: int) -> list[Decision]:
        del event, now_us
        del scene.lanes.owned[0]
        return []

    monkeypatch.setattr(scene.core, "handle", end)
    scene.reads_requests(5, change=1)

    assert scene.lanes.owned == {}


def test_completions_count_from_the_change_that_asked_for_them() -> None:
    scene = Scene()
    scene.reads_completions(a_completion(1), change=9)
    scene.owned.completions_change = 3

    scene.reads_completions(a_completion(2), change=2)
    scene.reads_completions(a_completion(7), a_completion(8, lane=1), change=3)

    assert scene.core.told == [Completed(7, Left(0, 1))]
    assert scene.owned.completions_at == 8


def test_a_completion_that_cannot_be_read_is_passed_over() -> None:
    scene = Scene()
    scene.owned.completions_change = 1
    broken = Record(TOPICS.completions, 0, 4, 0, None, b"\xff", [])

    scene.reads_completions(broken, a_completion(5), change=1)

    assert scene.core.told[1:] == [Completed(5, Left(0, 1))]
    assert scene.owned.completions_at == 6


def test_only_another_formers_claim_is_told() -> None:
    scene = Scene()
    scene.owned.completions_change = 1

    scene.reads_completions(a_claim(3, FORMER), a_claim(4, "cd" * 16), change=1)

    assert scene.core.told == [ClaimSeen(4)]
