"""How often a request runs, who is found out, and what ends it."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.delivery import LaneLimits
from headrace.delivery.decisions import (
    WriteBatch,
    WriteDeadLetters,
    WriteReplies,
)
from headrace.domain import Joined, MemberStatus, Priority, Reason
from tests.delivery.builders import (
    MS,
    SECOND,
    a_partition,
    a_request,
    a_source,
    a_version,
)
from tests.delivery.desk import Desk, a_desk, batches_in, found, ids, send

OK, RETRY = MemberStatus.OK, MemberStatus.RETRY
FINAL, UNACKED = MemberStatus.FINAL, MemberStatus.UNACKED


def test_a_lost_online_request_gets_one_more_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.done(batch, RETRY, "model_unavailable"))
    said = desk.done(second, RETRY, "model_unavailable")

    assert second.dispatch.requests[0].attempt == 2
    (replies,) = found(said, WriteReplies)
    assert [t.reason for t in replies.terminals] == [Reason.ATTEMPTS_EXHAUSTED]
    assert replies.terminals[0].attempt == 2


def test_an_unacked_reply_is_an_attempt_of_the_same_slot_too() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))

    (second,) = batches_in(desk.done(batch, UNACKED))

    assert second.dispatch.requests[0].attempt == 2
    assert second.dispatch.requests[0].avoid is None


@pytest.mark.parametrize("status", [UNACKED, RETRY])
@pytest.mark.parametrize("bulk", [False, True])
def test_who_ends_because_the_store_is_away_is_told_so(
    status: MemberStatus, *, bulk: bool
) -> None:
    """And ends as others do whose attempts are spent: it has done nothing."""
    desk = a_desk()
    priority = Priority.BULK if bulk else Priority.STANDARD
    batch = send(desk, a_request(0, priority=priority))
    attempts = desk.limits.attempts_max(bulk=bulk)
    for _ in range(attempts - 1):
        said = desk.done(batch, status, "store_unavailable")
        while not batches_in(said):
            said = desk.let_pass(100 * MS)
        (batch,) = batches_in(said)
    said = desk.done(batch, status, "store_unavailable")

    (replies,) = found(said, WriteReplies)
    assert [t.reason for t in replies.terminals] == [Reason.STORE_UNAVAILABLE]
    letters = [each for dead in found(said, WriteDeadLetters) for each in dead.letters]
    assert [each.reason for each in letters] == [Reason.STORE_UNAVAILABLE] * bulk


def test_another_slot_is_asked_when_one_failed() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))

    (second,) = batches_in(desk.done(batch, RETRY, "model_unavailable"))

    assert (batch.dispatch.slot, second.dispatch.slot) == (0, 1)


def test_a_late_batch_is_no_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    for _ in range(5):
        (batch,) = batches_in(desk.done(batch, RETRY, "late"))

    assert batch.dispatch.requests[0].attempt == 1


def test_only_the_members_that_flew_in_the_batch_are_retried() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.let_pass(batch.lease_us))

    assert batches_in(desk.done(batch, RETRY, "model_unavailable")) == []
    assert found(desk.done(second, RETRY, "model_unavailable"), WriteReplies) != []


def test_a_success_settles_a_request_that_is_queued_again() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    desk.hear()
    desk.silent = {0}
    desk.let_pass(2 * SECOND)
    assert list(desk.scheduler.queue) == [a_request(0).key]

    desk.done(batch, OK)

    assert desk.scheduler.queue == {}
    assert desk.lane.unsettled()[a_source(0)[:2]] == 0


def test_bulk_gets_five_attempts_with_a_growing_pause() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0, priority=Priority.BULK))
    pauses = []
    for _ in range(4):
        before_us = desk.now_us
        said = desk.done(batch, RETRY, "model_unavailable")
        while not batches_in(said):
            said = desk.let_pass(10 * MS)
        pauses.append((desk.now_us - before_us) // MS)
        (batch,) = batches_in(said)

    assert pauses == [500, 1000, 2000, 4000]
    assert batch.dispatch.requests[0].attempt == 5
    (letters,) = found(desk.done(batch, RETRY, "model_unavailable"), WriteDeadLetters)
    assert letters.letters[0].reason is Reason.ATTEMPTS_EXHAUSTED
    assert letters.letters[0].attempts == 5


class Searched(NamedTuple):
    runs: int
    answered: list[str]
    failed: list[str]


def search(count: int, bad: set[int], *, slots: int = 1) -> Searched:
    """``count`` requests in one batch, run until all have ended by a model that fails
    when a bad one is on board."""
    desk = a_desk(slots=slots, batch_max=count)
    culprits = {f"r{offset}" for offset in bad}
    said = desk.read(*(a_request(offset) for offset in range(count)))
    runs = [*batches_in(said)]
    answered: list[str] = []
    for batch in runs:  # grows while it is gone through
        if culprits & set(ids(batch)):
            said = desk.done(batch, RETRY, "model_error")
        else:
            said = desk.done(batch)
            answered += ids(batch)
        runs += batches_in(said)
    assert {r.attempt for batch in runs for r in batch.dispatch.requests} == {1}
    terminals = [t for each in desk.all(WriteReplies) for t in each.terminals]
    assert {t.reason for t in terminals} <= {Reason.MODEL_ERROR}
    return Searched(len(runs), sorted(answered), sorted(t.id for t in terminals))


@pytest.mark.parametrize("bad", [0, 13, 31])
@pytest.mark.parametrize("slots", [1, 2])
def test_one_bad_member_among_32_is_found_in_eleven_runs(bad: int, slots: int) -> None:
    found = search(32, {bad}, slots=slots)

    assert found.failed == [f"r{bad}"]
    assert found.answered == sorted(f"r{n}" for n in range(32) if n != bad)
    assert found.runs == 11


@given(
    count=st.integers(2, 32),
    bad=st.sets(st.integers(0, 31), min_size=1),
)
@settings(deadline=None, max_examples=60)
def test_every_bad_member_fails_alone_in_a_bounded_number_of_runs(
    count: int, bad: set[int]
) -> None:
    bad = {each % count for each in bad}

    found = search(count, bad)

    assert found.failed == sorted(f"r{n}" for n in bad)
    assert found.answered == sorted(f"r{n}" for n in range(count) if n not in bad)
    rounds = (count - 1).bit_length()
    assert found.runs <= min(1 + 2 * rounds * len(bad), 2 * count - 1)


def test_the_halves_of_a_failed_batch_try_another_slot() -> None:
    desk = a_desk(slots=2, cap=2)
    batch = send(desk, a_request(0), a_request(1))

    halves = batches_in(desk.done(batch, RETRY, "model_error"))

    assert [(ids(each), each.dispatch.slot) for each in halves] == [
        (["r0"], 1),
        (["r1"], 1),
    ]


def test_a_failure_alone_is_the_workers_until_another_try() -> None:
    desk = a_desk(slots=2)
    batch = send(desk, a_request(0))

    (second,) = batches_in(desk.done(batch, RETRY, "model_error"))
    (replies,) = found(desk.done(second, RETRY, "model_error"), WriteReplies)

    assert (batch.dispatch.slot, second.dispatch.slot) == (0, 1)
    assert [(t.id, t.reason) for t in replies.terminals] == [("r0", Reason.MODEL_ERROR)]


def test_a_batch_without_memory_runs_in_halves() -> None:
    desk = a_desk()
    batch = send(desk, *(a_request(offset) for offset in range(4)))

    runs = batches_in(desk.done(batch, RETRY, "oom"))
    runs += batches_in(desk.done(runs[0]))

    assert [ids(each) for each in runs] == [["r0", "r1"], ["r2", "r3"]]
    assert {each.dispatch.requests[0].attempt for each in runs} == {1}


def test_out_of_memory_alone_is_an_attempt() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    (second,) = batches_in(desk.done(batch, RETRY, "oom"))

    assert second.dispatch.requests[0].attempt == 2
    (replies,) = found(desk.done(second, RETRY, "oom"), WriteReplies)
    assert replies.terminals[0].reason is Reason.ATTEMPTS_EXHAUSTED


def test_whoever_was_kept_from_running_by_a_neighbour_goes_on_in_company() -> None:
    desk = a_desk()
    batch = send(desk, *(a_request(offset) for offset in range(3)))

    said = desk.done(batch, reason="neighbour", statuses=[RETRY, FINAL, RETRY])

    (again,) = batches_in(said)
    assert ids(again) == ["r0", "r2"]
    assert {r.attempt for r in again.dispatch.requests} == {1}


def test_a_final_member_does_not_fail_its_neighbours() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1))

    said = desk.done(batch, reason="poison", statuses=[OK, FINAL])

    (replies,) = found(said, WriteReplies)
    assert [(t.id, t.reason) for t in replies.terminals] == [("r1", Reason.POISON)]


def test_a_reason_of_a_newer_worker_is_a_model_error() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))

    (replies,) = found(desk.done(batch, FINAL, "not_known_yet"), WriteReplies)

    assert replies.terminals[0].reason is Reason.MODEL_ERROR


@pytest.mark.parametrize(
    ("previous_exit", "expected"),
    [
        ("signal:SEGV", [["r0"], ["r1"]]),
        ("signal:KILL", [["r0", "r1"]]),
        ("signal:TERM", [["r0", "r1"]]),
        ("exit:1", [["r0", "r1"]]),
    ],
)
def test_a_killer_fails_alone(previous_exit: str, expected: list[list[str]]) -> None:
    desk = a_desk()
    send(desk, a_request(0), a_request(1))

    desk.complete(Joined(0, previous_exit))
    desk.report(0)
    desk.hear()
    said = desk.tick()
    runs = batches_in(said)
    while batches_in(said):
        said = desk.done(batches_in(said)[0])
        runs += batches_in(said)

    assert [ids(each) for each in runs] == expected


def test_a_killer_found_out_late_still_fails_alone() -> None:
    """The slot is silent long before its next process tells how the last one ended."""
    desk = a_desk()
    desk.hear()
    send(desk, a_request(0), a_request(1))
    desk.silent = {0}
    desk.let_pass(2 * SECOND)
    assert [r.group for r in desk.scheduler.queue.values()] == ["", ""]

    desk.complete(Joined(0, "signal:SEGV"))

    assert [r.group for r in desk.scheduler.queue.values()] == [
        a_request(0).key,
        a_request(1).key,
    ]


def lose(desk: Desk) -> list[WriteBatch]:
    """The worker of slot 0 is killed by something, and started again."""
    desk.complete(Joined(0, "signal:KILL"))
    desk.report(0)
    desk.hear()
    return batches_in(desk.tick())


def test_a_killer_ends_as_a_dead_letter_and_its_company_is_answered() -> None:
    desk = a_desk(cap=2)
    send(desk, *(a_request(offset) for offset in range(3)))
    assert [ids(each) for each in lose(desk)] == [["r0", "r1", "r2"]]
    runs = lose(desk)
    answered = []
    while runs:
        (alone,) = runs  # nobody lies behind a suspect
        if ids(alone) == ["r1"]:
            runs = lose(desk)
        else:
            answered += ids(alone)
            runs = batches_in(desk.done(alone))

    assert sorted(answered) == ["r0", "r2"]
    (letters,) = desk.all(WriteDeadLetters)
    (letter,) = letters.letters
    assert (letter.id, letter.reason, letter.attempts) == ("r1", Reason.CRASH, 3)


def test_whoever_lies_behind_a_killer_is_not_taken_for_one() -> None:
    desk = Desk(slots=1, cap=2, batch_max=1)
    desk.activate([a_partition(log_end=99)])
    first, behind = batches_in(desk.read(a_request(0), a_request(1)))
    assert (ids(first), ids(behind)) == (["r0"], ["r1"])
    runs = lose(desk)
    for _ in range(9):
        alone = runs[0]
        runs = batches_in(desk.done(alone)) if ids(alone) == ["r1"] else lose(desk)
        if not runs:
            break

    letters = [each.id for w in desk.all(WriteDeadLetters) for each in w.letters]
    assert letters == ["r0"]


def test_a_slow_worker_makes_no_suspects_while_attempts_are_left() -> None:
    """On a busy machine every lease lapses."""
    desk = Desk(slots=3, cap=3, versions=(a_version(slots=frozenset(range(3))),))
    desk.activate([a_partition(log_end=9)])
    batch = send(desk, a_request(0), a_request(1), a_request(2))
    (second,) = batches_in(desk.let_pass(batch.lease_us))
    assert ids(second) == ["r0", "r1", "r2"]

    alone = batches_in(desk.let_pass(second.lease_us))

    # Their attempts are spent: once more, each alone.
    sent = [*(r for each in alone for r in each.dispatch.requests)]
    sent += desk.scheduler.queue.values()
    assert [(each.attempt, each.group) for each in sent] == [
        (3, a_request(offset).key) for offset in range(3)
    ]
    assert desk.all(WriteDeadLetters) == []


def test_a_batch_that_never_arrived_has_killed_nobody() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0))
    desk.ended(batch.write, None)
    desk.report(0)
    (batch,) = batches_in(desk.tick())
    desk.ended(batch.write, None)

    (replies,) = found(desk.report(0), WriteReplies)

    assert replies.terminals[0].reason is Reason.ATTEMPTS_EXHAUSTED
    assert desk.all(WriteDeadLetters) == []


def test_bulk_that_kills_three_workers_is_given_up() -> None:
    desk = a_desk()
    send(desk, a_request(0, priority=Priority.BULK))
    for _ in range(2):
        runs = lose(desk)
        while not runs:  # it backs off
            runs = batches_in(desk.let_pass(50 * MS))

    lose(desk)

    (letters,) = desk.all(WriteDeadLetters)
    assert [each.reason for each in letters.letters] == [Reason.CRASH]


@pytest.mark.parametrize("why", ["run_limit", "device"])
def test_whoever_ends_workers_by_their_own_word_is_a_killer_too(why: str) -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1))
    (batch,) = batches_in(desk.done(batch, RETRY, why))
    (batch,) = batches_in(desk.done(batch, RETRY, why))
    assert ids(batch) == ["r0"]

    desk.done(batch, RETRY, why)

    (letters,) = desk.all(WriteDeadLetters)
    assert [(each.id, each.reason) for each in letters.letters] == [
        ("r0", Reason.CRASH)
    ]


def test_what_a_worker_hands_back_was_not_tried() -> None:
    desk = a_desk()
    batch = send(desk, a_request(0), a_request(1))

    (again,) = batches_in(desk.done(batch, RETRY, "handed_back"))

    assert ids(again) == ["r0", "r1"]
    assert {r.attempt for r in again.dispatch.requests} == {1}


def test_a_request_that_flies_for_too_long_gets_its_verdict() -> None:
    """D19: at the next full commit."""
    limits = LaneLimits(flying_max_us=30 * SECOND)
    desk = Desk(slots=1, limits=limits, p99_us=60 * SECOND)
    desk.activate([a_partition(log_end=1)])
    send(desk, a_request(0))

    assert found(desk.let_pass(30 * SECOND - MS), WriteReplies) == []
    (replies,) = found(desk.let_pass(limits.commit_all_us), WriteReplies)

    assert replies.terminals[0].reason is Reason.ATTEMPTS_EXHAUSTED
