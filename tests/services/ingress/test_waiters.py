"""Who is answered, and when waiting ends."""

from hypothesis import given
from hypothesis import strategies as st

from services.ingress.waiters import (
    REMEMBERED,
    DeadlineWheel,
    Unclaimed,
    Waiters,
)

SPOKE_US = 8192


class Waiter:
    def __init__(self, request_id: str = "1", tenant: str = "default") -> None:
        self.request_id = request_id
        self.tenant = tenant
        self.spoke = 0


def test_the_first_reply_wins_and_later_ones_are_duplicates() -> None:
    waiters: Waiters[Waiter] = Waiters()
    waiter = Waiter()
    waiters.add(waiter)
    assert waiters.claim("1", "default") is waiter
    assert waiters.claim("1", "default") is Unclaimed.DUPLICATE
    assert len(waiters) == 0


def test_a_reply_to_another_tenants_id_leaves_the_waiter_alone() -> None:
    waiters: Waiters[Waiter] = Waiters()
    waiter = Waiter(tenant="a")
    waiters.add(waiter)
    assert waiters.claim("1", "b") is Unclaimed.UNKNOWN
    assert waiters.claim("1", "a") is waiter


def test_a_reply_to_one_who_gave_up_is_late() -> None:
    waiters: Waiters[Waiter] = Waiters()
    waiter = Waiter()
    waiters.add(waiter)
    assert waiters.give_up(waiter)
    assert not waiters.give_up(waiter)
    assert waiters.claim("1", "default") is Unclaimed.LATE


def test_ended_ids_are_remembered_for_a_while_not_for_ever() -> None:
    waiters: Waiters[Waiter] = Waiters()
    for number in range(2 * REMEMBERED + 1):
        waiters.add(Waiter(str(number)))
        waiters.claim(str(number), "default")
    assert waiters.claim(str(REMEMBERED), "default") is Unclaimed.DUPLICATE
    assert waiters.claim("0", "default") is Unclaimed.UNKNOWN


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "reply", "give up"]),
            st.sampled_from("123"),
            st.sampled_from("ab"),
        ),
        max_size=40,
    )
)
def test_each_request_has_one_end_which_is_its_first(
    events: list[tuple[str, str, str]],
) -> None:
    """D11, of an id that never names two requests."""
    waiters: Waiters[Waiter] = Waiters()
    asked: dict[str, Waiter] = {}
    ends: dict[str, object] = {}
    for what, request_id, tenant in events:
        waiter = asked.get(request_id)
        if what == "ask" and waiter is None:
            asked[request_id] = waiter = Waiter(request_id, tenant)
            waiters.add(waiter)
        elif what == "reply":
            claimed = waiters.claim(request_id, tenant)
            is_its = waiter is not None and waiter.tenant == tenant
            assert (claimed is waiter) == (is_its and request_id not in ends)
            if claimed is waiter and waiter is not None:
                ends[request_id] = claimed
        elif what == "give up" and waiter is not None:
            assert waiters.give_up(waiter) == (request_id not in ends)
            ends.setdefault(request_id, what)
    assert waiters.by_id.keys() == asked.keys() - ends.keys()


def test_a_passed_instant_is_due_at_the_next_turn() -> None:
    wheel: DeadlineWheel[Waiter] = DeadlineWheel()
    late = Waiter()
    assert wheel.due(10 * SPOKE_US) == []
    wheel.put(late, 0)
    assert wheel.due(10 * SPOKE_US) == []
    assert wheel.due(11 * SPOKE_US) == [late]


@given(
    st.lists(st.integers(0, 20 * SPOKE_US), max_size=8),
    st.lists(st.integers(0, 30 * SPOKE_US), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
)
def test_each_item_is_due_once_never_early_and_at_most_a_spoke_late(
    instants: list[int], turns: list[int], dropped: set[int]
) -> None:
    wheel: DeadlineWheel[Waiter] = DeadlineWheel()
    items = [Waiter(str(index)) for index in range(len(instants))]
    for item, instant in zip(items, instants, strict=True):
        wheel.put(item, 0)
        wheel.put(item, instant)
    for index in dropped & set(range(len(items))):
        wheel.drop(items[index])
        wheel.drop(items[index])
    due: list[str] = []
    for now_us in [*sorted(turns), 40 * SPOKE_US]:
        fallen = wheel.due(now_us)
        due += [item.request_id for item in fallen]
        assert all(instants[int(item.request_id)] <= now_us for item in fallen)
        assert all(
            instants[index] > now_us - SPOKE_US
            for index in range(len(items))
            if index not in dropped and str(index) not in due
        )
    assert sorted(due) == [
        str(index) for index in range(len(items)) if index not in dropped
    ]
