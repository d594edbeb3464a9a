"""How much a lane spends on runs that are not the first."""

from headrace.delivery import LaneLimits
from headrace.delivery.budget import RetryBudget
from headrace.delivery.decisions import WriteBatch, WriteReplies
from headrace.domain import MemberStatus, Priority, Reason, Request
from tests.delivery.builders import MS, a_partition, a_request
from tests.delivery.desk import Desk, batches_in

RETRY = MemberStatus.RETRY


def send(desk: Desk, *requests: Request) -> WriteBatch:
    (batch,) = batches_in(desk.read(*requests))
    return batch


def a_poor_desk() -> Desk:
    """Two retries saved up, and one earned by every second request."""
    limits = LaneLimits(cap=1, retry_burst=2, retry_percent=50)
    desk = Desk(slots=1, batch_max=1, limits=limits)
    desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    return desk


def test_retries_are_a_part_of_the_first_runs() -> None:
    desk = a_poor_desk()
    retried = []
    for offset in range(12):
        batch = send(desk, a_request(offset))
        again = batches_in(desk.done(batch, RETRY, "model_unavailable"))
        retried.append(bool(again))
        if again:
            desk.done(again[0])

    # Full at the start: two, and what they earned; then every second.
    assert retried == [True, True, True, False, True, False] + [True, False] * 3
    terminals = [t for each in desk.all(WriteReplies) for t in each.terminals]
    assert {t.reason for t in terminals} == {Reason.ATTEMPTS_EXHAUSTED}
    assert terminals[0].attempt == 1


def test_bulk_without_a_budget_waits_longest() -> None:
    limits = LaneLimits(cap=1, retry_burst=1, retry_percent=0)
    desk = Desk(slots=1, limits=limits)
    desk.activate([a_partition(priority=p, log_end=99) for p in Priority])
    (again,) = batches_in(desk.done(send(desk, a_request(0)), RETRY, "device"))
    desk.done(again)

    batch = send(desk, a_request(0, priority=Priority.BULK))
    desk.done(batch, RETRY, "device")

    assert batches_in(desk.let_pass(limits.backoff_max_us - 10 * MS)) == []
    (again,) = batches_in(desk.let_pass(20 * MS))
    assert again.dispatch.requests[0].attempt == 2


def test_one_models_retries_do_not_cost_anothers() -> None:
    budget = RetryBudget(LaneLimits(retry_burst=1))

    assert budget.spend("m", "1")
    assert not budget.spend("m", "1")
    assert budget.spend("n", "1")


def test_a_budget_is_never_more_than_full() -> None:
    budget = RetryBudget(LaneLimits(retry_burst=1, retry_percent=100))
    budget.spend("m", "1")
    for _ in range(5):
        budget.earn("m", "1")

    assert budget.spend("m", "1")
    assert not budget.spend("m", "1")
