"""What a former does while nothing fails."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Callable

import pytest

from headrace.domain import MemberStatus, ModelState, Priority, QueueLoad, Reason
from headrace.wire import Heartbeat, Role, ServiceState, decode_json
from headrace.wire import headers as names
from headrace.wire._generated import open_inference_pb2 as oip
from tests.broker.foreign import write_unreadable
from tests.services.batch_former.hands import Former, Worker
from tests.services.batch_former.pool import MODEL, Pool, until

pytestmark = pytest.mark.kafka

StartFormer = Callable[..., Former]
StartWorker = Callable[..., Worker]


def test_requests_leave_in_batches_and_the_watermark_follows(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    sent = pool.requests(50, served)
    worker = start_worker(pool)
    start_former(pool)

    batches = worker.serve(50)

    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)
    assert max(sum(batch.rows) for batch in batches) == served.max_batch
    until("everything is committed", lambda: pool.depth().committed == 50)


def test_only_requests_that_fit_together_share_a_batch(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    other = pool.announce(0, model="n")
    worker = start_worker(pool)
    kinds = {}
    for _ in range(10):
        kinds[pool.request(served, width=3)] = "m narrow"
        kinds[pool.request(served, width=5)] = "m wide"
        kinds[pool.request(other, width=3)] = "n narrow"
    pool.producer.flush(10)
    start_former(pool)

    batches = worker.serve(30)

    assert [len({kinds[each] for each in batch.ids}) for batch in batches] == [
        1 for _ in batches
    ]
    assert Counter(kinds[each] for batch in batches for each in batch.ids) == {
        "m narrow": 10,
        "m wide": 10,
        "n narrow": 10,
    }


def test_requests_of_busy_and_of_idle_models_are_all_served(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    models = [pool.announce(0, model=name) for name in ("m", "n", "o")]
    worker = start_worker(pool)
    start_former(
        pool, HEADRACE_FORMER__HOT_PARTITIONS_MAX="1", HEADRACE_FORMER__IDLE_MS="1"
    )
    sent, served = [], []
    for model in models * 5:
        # What was busy is idle by now.
        sent += pool.requests(2, model)
        served += [one for batch in worker.serve(2) for one in batch.ids]

    assert sorted(served) == sorted(sent)
    until("everything is committed", lambda: pool.depth().committed == 10)


def test_an_urgent_request_does_not_wait_behind_a_bulk_backlog(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    pool.requests(200, served, priority=Priority.BULK, timeout_s=None)
    worker = start_worker(pool)
    start_former(pool)
    first = worker.next_batch()

    urgent = pool.requests(1, served, priority=Priority.REALTIME)[0]
    second = worker.next_batch()
    until(
        "the urgent one is queued",
        lambda: urgent in second.ids or Priority.REALTIME in queued(pool),
    )
    worker.finish(first)
    third = worker.next_batch()

    assert urgent in second.ids + third.ids


def test_a_request_that_expired_on_its_way_is_told_so(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    replies = pool.reading(pool.topics.replies)
    late = pool.requests(1, served, timeout_s=5.0, age_s=6.0)[0]
    start_former(pool)

    answers = until("a reply", replies.answers)

    assert answers[late].reason is Reason.EXPIRED
    assert worker.gets_nothing(0.3)
    until("it is committed", lambda: pool.depth().committed == 1)


def test_a_request_that_no_worker_takes_in_time_is_told_so(
    pool: Pool, start_former: StartFormer
) -> None:
    served = pool.announce(0)
    former = start_former(pool)
    former.heard("lane.active")
    replies = pool.reading(pool.topics.replies)

    before_us = time.time_ns() // 1000
    waiting = pool.requests(1, served, timeout_s=1.0)[0]
    answer = until("a reply", lambda: replies.answers().get(waiting))

    assert answer.reason is Reason.NO_CAPACITY
    # How soon after its deadline depends on the machine: `tests/delivery` has it.
    assert replies.records[0].timestamp_us > before_us + 900_000


def test_a_version_that_nobody_serves_is_refused_by_name(
    pool: Pool, start_former: StartFormer
) -> None:
    served = pool.announce(0)
    unknown = pool.request(pool.announce(version="7"))
    known = pool.request(served, timeout_s=600.0)
    pool.producer.flush(10)
    start_former(pool)
    replies = pool.reading(pool.topics.replies)

    answer = until("a reply", lambda: replies.answers().get(unknown))

    assert answer.reason is Reason.MODEL_UNKNOWN
    assert "'7'" in answer.text
    assert known not in replies.answers()


def test_what_waits_for_a_removed_version_is_refused(
    pool: Pool, start_former: StartFormer
) -> None:
    served = pool.announce(0)
    former = start_former(pool)
    former.heard("lane.active")
    waiting = pool.requests(1, served)[0]
    replies = pool.reading(pool.topics.replies)
    queued = until("it is queued", lambda: queues(pool))

    pool.withdraw(0)
    answer = until("a reply", lambda: replies.answers().get(waiting))

    assert queued[0].requests == 1
    assert answer.reason is Reason.MODEL_UNAVAILABLE


def test_what_waits_for_a_model_that_is_gone_is_refused_too(
    pool: Pool, start_former: StartFormer
) -> None:
    served = pool.announce(0)
    pool.withdraw(0)
    waiting = pool.requests(1, served)[0]
    replies = pool.reading(pool.topics.replies)
    start_former(pool)

    answer = until("a reply", lambda: replies.answers().get(waiting))

    assert answer.reason is Reason.MODEL_UNAVAILABLE
    until("it is committed", lambda: pool.depth().committed == 1)


def queued(pool: Pool) -> set[Priority]:
    return {queue.priority for queue in queues(pool)}


def queues(pool: Pool) -> list[QueueLoad]:
    """What the newest heartbeat of a former says of its queues."""
    return [queue for lane in beats(pool)[-1].lanes for queue in lane.load.queues]


def beats(pool: Pool) -> list[Heartbeat]:
    """All heartbeats of formers so far."""
    records = pool.reading(pool.topics.status).whole()
    found = [decode_json(Heartbeat, record) for record in records]
    return [beat for beat in found if beat.role is Role.BATCH_FORMER]


def test_an_unloading_version_still_gets_what_is_queued(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    sent = pool.requests(3, served)
    pool.announce(0, state=ModelState.UNLOADING)
    worker = start_worker(pool)
    start_former(pool)

    batches = worker.serve(3)

    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)


def test_a_model_that_appears_later_is_served(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    worker = start_worker(pool)
    former = start_former(pool)
    former.heard("lane.active")

    served = pool.announce(0)
    sent = pool.requests(3, served)

    batches = worker.serve(3)
    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)


def test_a_record_that_cannot_be_read_is_kept_and_the_partition_goes_on(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    topic = pool.topics.requests(MODEL)
    headers = [
        (names.CE_ID, b"broken"),
        (names.REPLY_TOPIC, pool.topics.replies.encode()),
        ("mine", b"kept"),
    ]
    pool.produce(topic, 2, b"\xff\xff", key=b"k", headers=headers)
    pool.produce(topic, 2, None, headers=[(names.CE_ID, b"empty")])
    pool.produce(
        topic,
        2,
        b"",
        headers=[(names.CE_ID, b"astray"), (names.REPLY_TOPIC, b"elsewhere")],
    )
    sent = pool.requests(1, served)
    worker = start_worker(pool)
    start_former(pool)

    assert worker.serve(1)[0].ids == sent
    letters = pool.reading(pool.topics.dead_letters(MODEL))
    until("three dead letters", lambda: len(letters.look()) == 3)
    found = {dict(one.headers)[names.CE_ID]: one for one in letters.records}
    broken = dict(found[b"broken"].headers)
    assert (found[b"broken"].key, found[b"broken"].value) == (b"k", b"\xff\xff")
    assert broken["mine"] == b"kept"
    assert broken[names.REASON] == b"undecodable"
    assert broken[names.SOURCE] == f"{topic}/2/0".encode()
    assert dict(found[b"astray"].headers)[names.REASON] == b"reply_address"
    replies = pool.reading(pool.topics.replies, *range(pool.bus.ingress_slots))
    reply = dict(until("a plain reply", replies.look)[0].headers)
    assert (reply[names.CE_ID], reply[names.REASON]) == (b"broken", b"undecodable")
    until("all is committed", lambda: pool.depth().committed == 4)


def test_a_record_made_by_hand_is_served_with_defaults(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    pool.announce(0)
    request = oip.ModelInferRequest(model_name=MODEL, id="mine")
    x = request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    x.contents.fp32_contents.extend([1.0, 2.0])
    pool.produce(
        pool.topics.requests(MODEL),
        1,
        request.SerializeToString(),
        headers=[
            (names.CE_ID, b"1"),
            (names.MODEL, MODEL.encode()),
            (names.REPLY_TOPIC, pool.topics.replies.encode()),
        ],
    )
    worker = start_worker(pool)
    start_former(pool)

    batch = worker.next_batch()

    assert (batch.ids, batch.client_ids, batch.rows) == (["1"], ["mine"], [1])
    assert [one and one.partition for one in batch.addresses] == [None]
    assert bytes(batch.tensors[0].data) == b"\0\0\x80?\0\0\0@"


def test_a_failed_batch_is_halved_and_the_culprit_alone_fails(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    sent = pool.requests(3, served)
    worker = start_worker(pool)
    start_former(pool)
    replies = pool.reading(pool.topics.replies)

    together = worker.next_batch()
    worker.finish(together, MemberStatus.RETRY, "model_error", "it broke")
    sizes = []
    for _ in range(4):
        part = worker.next_batch()
        sizes.append(len(part.ids))
        if sent[1] in part.ids:
            worker.finish(part, MemberStatus.RETRY, "model_error", "it broke")
        else:
            worker.finish(part)
    answers = until("the culprit's answer", replies.answers)

    assert len(together.ids) == 3
    assert sorted(sizes) == [1, 1, 1, 2]
    assert {each: answer.reason for each, answer in answers.items()} == {
        sent[1]: Reason.MODEL_ERROR
    }
    until("all is committed", lambda: pool.depth().committed == 3)


def test_reading_stops_at_its_limit_and_goes_on_below_it(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    sent = pool.requests(300, served, timeout_s=600.0)
    limits = {
        "HEADRACE_DELIVERY__UNSETTLED_MAX": "20",
        "HEADRACE_FORMER__RECORDS_MAX": "5",
    }
    former = start_former(pool, **limits)
    former.heard("lane.active")
    until("the limit is reached", lambda: max(held(pool)) >= 20)
    since = len(held(pool))
    until("it has said so again, and again", lambda: len(held(pool)) > since + 1)

    # What is in the inbox when the reader pauses is still taken: two messages.
    assert max(held(pool)) <= 35
    batches = start_worker(pool).serve(300)
    assert sorted(each for batch in batches for each in batch.ids) == sorted(sent)


def held(pool: Pool) -> list[int]:
    """The requests in a former's queues, as it said heartbeat by heartbeat."""
    return [
        sum(queue.requests for lane in beat.lanes for queue in lane.load.queues)
        for beat in beats(pool)
    ]


def test_it_drains_on_sigterm_and_says_how_it_is(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    former = start_former(pool)
    former.heard("lane.active")
    pool.requests(5, served)
    worker.serve(5)
    metrics = get(f"{former.admin()}/metrics")
    ready = get(f"{former.admin()}/readyz")

    code = former.stop()

    assert ready == "ok\n"
    of = '{model="m",priority="standard",version="1"}'
    assert f"headrace_batch_requests_sum{of} 5.0" in metrics
    assert f"headrace_queue_wait_seconds_count{of} 5.0" in metrics
    assert f"headrace_slack_seconds_count{of} 5.0" in metrics
    assert 'headrace_lane_takeovers_total{lane="0"} 1.0' in metrics
    assert code == 0
    assert pool.depth().committed == 5
    last = beats(pool)[-1]
    assert (last.state, last.lanes) == (ServiceState.DRAINING, ())


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_headers_that_nobody_can_read_end_no_former(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    worker = start_worker(pool)
    former = start_former(pool)
    former.heard("lane.active")
    topics, servers = pool.topics, pool.connection.bootstrap_servers
    for topic in (
        *(topics.control_models, topics.status),
        *(topics.completions, topics.lanes),
    ):
        write_unreadable(servers, topic, b"{}")
        former.heard("record.undecodable", topic=topic)
    requests = topics.requests(MODEL)
    headers = {"ce_id": "one", "reply-topic": topics.replies}
    write_unreadable(servers, requests, b"foreign", headers, partition=2)

    sent = pool.requests(1, served)

    assert worker.serve(1)[0].ids == sent
    letters = pool.reading(topics.dead_letters(MODEL))
    (letter,) = until("a dead letter", letters.look)
    assert letter.value == b"foreign"
    assert dict(letter.headers)[names.REASON] == b"undecodable"
    until("both are committed", lambda: pool.depth().committed == 2)
