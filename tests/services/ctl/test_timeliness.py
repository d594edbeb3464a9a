"""What is said of a client who may have been told otherwise than the log has it."""

from __future__ import annotations

from services.ctl.following import timeliness
from services.ctl.request_trail import AnswerTrail, RequestTrail
from tests.wire.records import TOPICS

MS = 1_000


def an_answer(at_ms: int, *, topic: str = TOPICS.replies, reason: str = "") -> str:
    answer = AnswerTrail(at_ms * MS, f"{topic}/0/7", "1", reason, "", [])
    trail = RequestTrail("id", "", "t", "m", "standard", 300 * MS, [], answers=[answer])
    return timeliness(TOPICS, trail)


def test_a_success_that_the_log_had_just_in_time_may_have_been_told_as_expired() -> (
    None
):
    place = "request.failed with this id"

    assert an_answer(247).startswith(
        "The log had the answer 53 ms before its deadline. Its ingress has told the "
        "client 504 expired if it was behind by more than that: that is in"
    )
    assert place in an_answer(247)
    assert an_answer(330).startswith(
        "The log had the answer 30 ms after its deadline. Its ingress has told the "
        "client 504 expired: that is in"
    )


def test_what_no_ingress_tells_otherwise_has_nothing_said_of_it() -> None:
    kept = TOPICS.results("t", "batch")

    assert an_answer(-800) == ""
    assert an_answer(330, topic=kept) == ""
    assert an_answer(330, reason="expired") == ""
