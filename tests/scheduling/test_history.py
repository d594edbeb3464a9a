"""What holds of every history: of requests that come as they like, woken on time.

The numbers are those of ``libs/headrace/scheduling/README.md``.
"""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.domain import Priority, ReleaseReason, Request
from headrace.scheduling import SchedulingSettings
from tests.scheduling.room import Room, Sent
from tests.scheduling.scenes import MS, a_request, a_version

HOP_US, BACK_US = 200, 300
EAGER = SchedulingSettings(
    control_hop_us=HOP_US, response_hop_us=BACK_US, deferral_bulk=0.0, bulk_of_rest=1.0
)
VERSIONS = (
    a_version(slots=frozenset({0, 1}), max_batch=3),
    a_version("n", slots=frozenset({1}), max_batch=2, alpha_us=2 * MS),
)
ONLINE = (Priority.REALTIME, Priority.INTERACTIVE, Priority.STANDARD)
EXAMPLES = hypothesis_settings(max_examples=100, deadline=None)


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    limits_ms: tuple[int, ...],
    priorities: tuple[Priority, ...] = ONLINE,
    models: tuple[str, ...] = ("m", "m", "n"),
) -> list[Request]:
    """Up to forty requests of one row in bursts, two shapes and two tenants."""
    kinds = st.tuples(
        st.sampled_from([0, 0, 0, 300, 1 * MS, 3 * MS, 9 * MS]),
        st.sampled_from(models),
        st.sampled_from(priorities),
        st.sampled_from(limits_ms),
        st.sampled_from("ab"),
        st.sampled_from("tu"),
    )
    now_us = 0
    found = []
    for gap_us, model, priority, limit_ms, shape, tenant in draw(
        st.lists(kinds, min_size=1, max_size=40)
    ):
        now_us += gap_us
        limit_us = None if priority == Priority.BULK else limit_ms * MS
        found.append(
            a_request(
                model=model,
                shape=shape,
                tenant=tenant,
                priority=priority,
                at_us=now_us,
                limit_us=limit_us,
            )
        )
    return found


class PunctualRoom(Room):
    """I5, I23: before anything else happens, a request that has become hopeless is
    refused, since the scheduler asked to be woken."""

    def before(self, next_us: int) -> None:
        for request in self.queued.values():
            assert request.deadline_us is not None
            alone_us = HOP_US + self.run_us(request, 1) + BACK_US
            assert next_us - 1 + alone_us <= request.deadline_us


@given(histories(limits_ms=(3, 5, 9, 30)))
@EXAMPLES
def test_nobody_waits_in_silence_past_the_last_start_in_time(
    requests: list[Request],
) -> None:
    room = PunctualRoom(*VERSIONS, slots=2, settings=EAGER)
    room.run(requests)

    assert not room.queued
    assert len(requests) == len(room.refused) + sum(
        len(sent.dispatch.requests) for sent in room.sent
    )


def test_a_head_that_gained_time_is_looked_at_again() -> None:
    """I5: a run is bounded at 2.5 ms at first, and at 2 ms after some of 2 ms."""
    settings = EAGER.model_copy(update={"shares": (0.0, 0.0, 0.0, 0.0)})
    room = Room(a_version(max_batch=1), slots=1, settings=settings)
    before = (a_request(priority=Priority.REALTIME, limit_us=None) for _ in range(40))
    room.run([*before, a_request(limit_us=60 * MS)])

    ((refused_at_us, _),) = room.refused
    assert 57.4 * MS < refused_at_us <= 57.6 * MS


@given(histories(limits_ms=(3, 5, 9, 30)))
@EXAMPLES
def test_whatever_leaves_arrives_in_time_where_runs_take_what_was_announced(
    requests: list[Request],
) -> None:
    """I4, to the end: also in the credit ahead of a running batch."""
    room = Room(*VERSIONS, slots=2, settings=EAGER)
    room.run(requests)

    for sent in room.sent:
        ends_us = sent.starts_us + sent.run_us + BACK_US
        for request in sent.dispatch.requests:
            assert request.deadline_us is not None
            assert ends_us <= request.deadline_us


class BusyRoom(Room):
    """I8: no worker is idle beside a request that it could run."""

    def after_tick(self) -> None:
        for slot in self.idle():
            assert not any(self.may_run(each, slot) for each in self.queued.values())


@given(histories(limits_ms=(900,)))
@EXAMPLES
def test_no_worker_is_idle_beside_work(requests: list[Request]) -> None:
    BusyRoom(*VERSIONS, slots=2, settings=EAGER).run(requests)


@given(histories(limits_ms=(900,), priorities=(Priority.BULK,)))
@EXAMPLES
def test_no_worker_is_idle_beside_bulk_work_alone(requests: list[Request]) -> None:
    BusyRoom(*VERSIONS, slots=2, settings=EAGER).run(requests)


@given(
    histories(limits_ms=(40, 60, 90), models=("m",), priorities=(Priority.STANDARD,)),
    st.sampled_from([0.2, 0.5]),
)
@EXAMPLES
def test_a_batch_waits_for_company_a_part_of_its_spare_time_at_most(
    requests: list[Request], deferral: float
) -> None:
    """I9: counted from its oldest member to the last moment at which it would make
    its deadline; one that comes late may find that time over."""
    settings = EAGER.model_copy(update={"deferral": deferral})
    served = a_version(max_batch=16)
    room = Room(served, slots=1, settings=settings)
    # What is asked for is known after a while; nobody is waited for before.
    steady = [
        a_request(shape="a", at_us=at_us, limit_us=60 * MS)
        for at_us in range(0, 200 * MS, 5 * MS)
    ]
    later = [
        msgspec.structs.replace(
            each,
            arrived_us=each.arrived_us + 100 * MS,
            deadline_us=(each.deadline_us or 0) + 100 * MS,
        )
        for each in requests
    ]
    room.run([*steady, *later])

    assert not room.refused
    for sent in room.sent:
        before = [
            each for each in sent.dispatch.requests if each.arrived_us < sent.at_us
        ]
        if before and sent.idle_since_us is not None:
            deadline_us = min(each.deadline_us or 0 for each in before)
            run_us = room.run_us(before[0], len(before))
            last_us = deadline_us - BACK_US - HOP_US - run_us
            oldest_us = before[0].arrived_us
            waits_us = int(deferral * (last_us - oldest_us))
            assert sent.at_us <= max(sent.idle_since_us, oldest_us + waits_us)


def is_paid_first(sent: Sent) -> bool:
    return sent.dispatch.reason is ReleaseReason.OWED


@given(histories(limits_ms=(900,), priorities=(*ONLINE, Priority.BULK)))
@EXAMPLES
def test_no_batch_passes_a_more_urgent_one_unless_its_share_is_owed(
    requests: list[Request],
) -> None:
    """I10."""
    room = Room(*VERSIONS, slots=2, settings=EAGER)
    room.run(requests)

    assert not passing(room)


def passing(room: Room) -> list[Sent]:
    """Batches that left beside a more urgent request that their worker could run."""
    return [
        sent
        for sent in room.sent
        if not is_paid_first(sent)
        and any(
            each.priority < sent.priority and room.may_run(each, sent.dispatch.slot)
            for each in sent.left
        )
    ]


@given(
    histories(
        limits_ms=(8, 20, 60),
        models=("m", "m", "m", "n"),
        priorities=(*ONLINE, Priority.BULK),
    ),
    st.sampled_from([*ONLINE, None]),
)
@hypothesis_settings(max_examples=25, deadline=None)
def test_no_batch_passes_a_more_urgent_one_where_requests_are_lost(
    requests: list[Request], steady: Priority | None
) -> None:
    """I10 of a queue that is asked for 1.25 times what its worker can do, most of it
    in one priority, or in all in turn."""
    versions = (
        a_version(slots=frozenset({0})),
        a_version("n", slots=frozenset({0}), alpha_us=2 * MS),
    )
    room = Room(*versions, slots=1, settings=EAGER)
    every_ms = [
        a_request(
            shape="a",
            priority=ONLINE[at_ms % 3] if steady is None else steady,
            at_us=at_ms * MS,
            limit_us=60 * MS,
        )
        for at_ms in range(500)
    ]
    later = [
        msgspec.structs.replace(
            each,
            arrived_us=each.arrived_us + 400 * MS,
            deadline_us=each.deadline_us and each.deadline_us + 400 * MS,
        )
        for each in requests
    ]
    room.run([*every_ms, *later])

    assert any(
        each.request.priority == steady or steady is None for _, each in room.refused
    )
    assert not passing(room)


def test_rare_realtime_requests_are_in_time_where_standard_ones_are_lost() -> None:
    """And batches are full all the same: 4 rows in 5 ms, one asked for each 1 ms."""
    room = Room(a_version(), slots=1, settings=EAGER)
    standard = [a_request(at_us=at * MS, limit_us=60 * MS) for at in range(1_000)]
    urgent = [
        a_request(priority=Priority.REALTIME, at_us=at * MS, limit_us=60 * MS)
        for at in range(25, 1_000, 50)
    ]
    room.run([*standard, *urgent])

    lost = [each.request.priority for _, each in room.refused]
    assert lost
    assert Priority.REALTIME not in lost
    assert sum(len(sent.dispatch.requests) for sent in room.sent) > 3.9 * len(room.sent)


def test_a_bulk_run_takes_a_fifth_of_what_online_requests_can_stand() -> None:
    """I12: 1 + 3 ms a row, bounded a quarter higher, in a fifth of 50 ms."""
    versions = (
        a_version(slots=frozenset({0})),
        a_version("bulk", slots=frozenset({0}), max_batch=16, beta_us=3 * MS),
    )
    room = Room(*versions, slots=1, settings=EAGER)
    online = a_request(limit_us=50 * MS)
    backlog = [
        a_request(model="bulk", priority=Priority.BULK, at_us=60 * MS, limit_us=None)
        for _ in range(8)
    ]
    room.run([online, *backlog])

    bulk = [sent for sent in room.sent if sent.priority == Priority.BULK]
    assert [len(sent.dispatch.requests) for sent in bulk] == [2, 2, 2, 2]


@given(
    histories(limits_ms=(50,), models=("m",)),
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=30),
)
@EXAMPLES
def test_a_bulk_run_is_no_longer_than_online_requests_can_stand(
    requests: list[Request], bulk: list[tuple[int, int]]
) -> None:
    """I12: a fifth of the shortest time limit of late, without the hops. A request
    that is longer by itself goes when the share of both slots' time since it came, and
    since the last such run, has paid for it."""
    versions = (
        a_version(slots=frozenset({0, 1}), max_batch=8),
        a_version("bulk", slots=frozenset({0, 1}), max_batch=16, beta_us=4 * MS),
    )
    room = Room(*versions, slots=2, settings=EAGER)
    backlog = [
        a_request(
            model="bulk",
            priority=Priority.BULK,
            rows=rows,
            at_us=at_ms * MS,
            limit_us=None,
        )
        for at_ms, rows in bulk
    ]
    room.run([*requests, *backlog])

    chunk_us = 0.2 * (50 * MS - HOP_US - BACK_US)
    share = 2 * EAGER.shares[Priority.BULK]
    paid_at_us = 0.0
    for sent in room.sent:
        # The bound is found anew every 50 ms.
        known = any(each.arrived_us <= sent.at_us - 50 * MS for each in requests)
        if sent.priority != Priority.BULK or not known:
            continue
        if sent.at_us >= 1_000 * MS or sent.run_us <= chunk_us:
            continue
        head = sent.dispatch.requests[0]
        head_us = room.run_us(head, head.rows)
        assert share * (sent.at_us - head.arrived_us) >= head_us - 1
        assert sent.at_us >= paid_at_us - 50 * MS
        assert sent.run_us <= 1.25 * 1.25 * head_us  # bounds are up to a quarter wide
        paid_at_us = sent.at_us + sent.run_us / share
