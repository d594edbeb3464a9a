"""The contract of a lane leader, for every log (`delivery`: A2, T5, D8)."""

import pytest

from headrace.broker import CommitRefused, Committed, Leader, TopicPartition
from headrace.errors import BusError
from tests.broker.bench import PATIENCE_S, Bench, Lanes, make_topic, serve

LANES = 4
UNHURRIED_MS = 120_000
"""A session that ends long after the test has lost its patience."""


@pytest.fixture
def requests(bench: Bench) -> str:
    """A topic that the group does not subscribe to; the lanes' topic beside it."""
    make_topic(bench, "lanes", LANES)
    return make_topic(bench, "requests", 8)


@pytest.mark.usefixtures("requests")
def test_a_lone_member_owns_every_lane(bench: Bench) -> None:
    lanes = Lanes()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: lanes.owned == {0, 1, 2, 3})
    assert lanes.heard == [("assign", {0, 1, 2, 3})]


def test_commits_of_other_topics_come_back_with_their_metadata(
    bench: Bench, requests: str
) -> None:
    lanes = Lanes()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: len(lanes.owned) == LANES)
    commits = {
        TopicPartition(requests, 3): Committed(5, "1;e=4;c=17;n=0"),
        TopicPartition(requests, 7): Committed(0, ""),
    }

    assert leader.commit_now(commits, PATIENCE_S) is None

    never = TopicPartition(requests, 0)
    assert leader.committed([*commits, never], PATIENCE_S) == {
        **commits,
        never: Committed(None, ""),
    }


def test_each_commit_is_answered_in_a_later_poll(bench: Bench, requests: str) -> None:
    lanes = Lanes()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: len(lanes.owned) == LANES)
    one = TopicPartition(requests, 0)
    answers: list[tuple[str, CommitRefused | None]] = []

    leader.commit({one: Committed(1, "")}, lambda it: answers.append(("first", it)))
    leader.commit({one: Committed(2, "")}, lambda it: answers.append(("second", it)))
    leader.commit({one: Committed(2, "")}, lambda it: answers.append(("third", it)))
    assert answers == []

    serve([leader], lambda: len(answers) == 3)
    assert answers == [("first", None), ("second", None), ("third", None)]
    assert leader.committed([one], PATIENCE_S) == {one: Committed(2, "")}


def test_who_has_not_joined_proves_nothing(bench: Bench, requests: str) -> None:
    leader = bench.leader("former-0", Lanes())
    one = TopicPartition(requests, 0)
    answer = leader.commit_now({one: Committed(1, "")}, PATIENCE_S)
    assert answer is CommitRefused.NOT_MEMBER


@pytest.mark.usefixtures("requests")
def test_a_lane_moves_only_after_its_owner_gave_it_up(bench: Bench) -> None:
    first, second = Lanes(), Lanes()
    leader = bench.leader("former-0", first)
    serve([leader], lambda: len(first.owned) == LANES)
    other = bench.leader("former-1", second)

    def shared() -> bool:
        assert not first.owned & second.owned
        return len(first.owned) == len(second.owned) == 2

    serve([leader, other], shared)
    assert first.owned | second.owned == {0, 1, 2, 3}
    assert first.heard[1:] == [("revoke", second.owned)]


def test_a_commit_while_giving_up_a_lane_is_there_for_its_successor(
    bench: Bench, requests: str
) -> None:
    one = TopicPartition(requests, 0)
    first, second = Lanes(), Lanes()
    leader = bench.leader("former-0", first)
    serve([leader], lambda: len(first.owned) == LANES)
    answers: list[CommitRefused | None] = []
    first.leaving = lambda: leader.commit({one: Committed(9, "last")}, answers.append)

    other = bench.leader("former-1", second)
    serve([leader, other], lambda: len(second.owned) == 2)

    assert other.committed([one], PATIENCE_S) == {one: Committed(9, "last")}
    serve([leader], lambda: answers == [None])
    first.leaving = None


def test_a_member_may_commit_for_a_lane_that_is_not_its_own(
    bench: Bench, requests: str
) -> None:
    first, second = Lanes(), Lanes()
    leader = bench.leader("former-0", first)
    other = bench.leader("former-1", second)
    serve([leader, other], lambda: len(first.owned) == len(second.owned) == LANES // 2)
    foreign = TopicPartition(requests, min(second.owned) * 4 % 8)
    serve([leader, other], lambda: _commit(leader, foreign) is None)


@pytest.mark.usefixtures("requests")
def test_a_restarted_member_has_its_lanes_back_and_disturbs_nobody(
    bench: Bench,
) -> None:
    first, second = Lanes(), Lanes()
    leader = bench.leader("former-0", first, session_ms=UNHURRIED_MS)
    other = bench.leader("former-1", second, session_ms=UNHURRIED_MS)
    serve([leader, other], lambda: len(first.owned) == len(second.owned) == LANES // 2)
    owned, heard = set(first.owned), list(second.heard)

    leader.close()
    again = Lanes()
    restarted = bench.leader("former-0", again, session_ms=UNHURRIED_MS)
    serve([restarted, other], lambda: again.owned == owned)

    assert second.heard == heard


@pytest.mark.usefixtures("requests")
def test_a_member_that_leaves_gives_its_lanes_to_the_others_at_once(
    bench: Bench,
) -> None:
    first, second = Lanes(), Lanes()
    leader = bench.leader("former-0", first, session_ms=UNHURRIED_MS)
    other = bench.leader("former-1", second)
    serve([leader, other], lambda: len(first.owned) == len(second.owned) == LANES // 2)

    leader.close(leave=True)

    serve([other], lambda: len(second.owned) == LANES)


def test_the_older_of_two_with_one_instance_id_is_fenced(
    bench: Bench, requests: str
) -> None:
    one = TopicPartition(requests, 0)
    lanes, again = Lanes(), Lanes()
    leader = bench.leader("former-0", lanes)
    serve([leader], lambda: len(lanes.owned) == LANES)
    restarted = bench.leader("former-0", again)
    serve([restarted], lambda: len(again.owned) == LANES)

    assert _commit(leader, one) is CommitRefused.FENCED
    with pytest.raises(BusError) as fenced:
        serve([leader], lambda: False)
    assert fenced.value.code == "_FATAL"
    assert _commit(restarted, one) is None


def _commit(leader: Leader, partition: TopicPartition) -> CommitRefused | None:
    return leader.commit_now({partition: Committed(1, "")}, PATIENCE_S)
