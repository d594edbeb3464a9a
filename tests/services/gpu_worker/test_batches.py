"""A worker process on a real log, sent to by hand."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.broker import KafkaReader, TopicPartition
from headrace.domain import (
    Done,
    MemberStatus,
    Reason,
    ReplyAddress,
    ServedVersion,
    Setback,
)
from headrace.wire import pack_bytes, results_topic
from headrace.wire._generated import open_inference_pb2 as oip
from tests.models import graphs, zoo
from tests.models.folders import put_simulated, put_version
from tests.services.gpu_worker.pool import Pool

pytestmark = pytest.mark.kafka


def index(pool: Pool, served: ServedVersion, row: int, **how: object):
    value = np.array([[row]], np.int64).tobytes()
    return pool.request(served, [((1, 1), value)], id_=f"r{row}", **how)


def test_each_member_gets_its_own_rows_and_the_former_is_told(pool: Pool) -> None:
    put_version(pool.models, "addsub", "1", graphs.addsub())
    pool.start()
    served = pool.served("addsub")
    left = np.arange(6 * 16, dtype=np.int32).reshape(6, 16)
    sizes = [(0, 1), (1, 3), (3, 6)]
    requests = [
        pool.request(
            served,
            [
                ((end - start, 16), left[start:end].tobytes()),
                ((end - start, 16), np.ones((end - start, 16), np.int32).tobytes()),
            ],
            id_=f"m{start}",
            offset=start,
        )
        for start, end in sizes
    ]

    batch = pool.send(served, requests)
    done = pool.done(batch)

    assert [member.status for member in done.members] == [MemberStatus.OK] * 3
    assert [member.source.offset for member in done.members] == [0, 1, 3]
    assert (done.rows, done.model, done.version) == (6, "addsub", "1")
    assert done.run_us > 0
    envelopes = pool.reply_envelopes()
    assert len(envelopes) == 1
    assert envelopes[0].batch == batch
    assert envelopes[0].facts.run_us == done.run_us
    assert envelopes[0].facts.worker == f"0/{pool.incarnations[0]}"
    for answer, (start, end) in zip(envelopes[0].answers, sizes, strict=True):
        assert answer.id == f"m{start}"
        added, subtracted = answer.outputs
        assert added.shape == (end - start, 16)
        assert bytes(added.data) == (left[start:end] + 1).tobytes()
        assert bytes(subtracted.data) == (left[start:end] - 1).tobytes()


@pytest.mark.parametrize("bad", [0, 2, 3])
def test_a_bad_member_fails_its_batch_and_is_named_when_it_is_alone(
    pool: Pool, bad: int
) -> None:
    put_version(pool.models, "lookup", "1", graphs.lookup())
    pool.start()
    served = pool.served("lookup")
    rows = [1_000_000 if place == bad else place for place in range(4)]

    together = pool.done(pool.send(served, [index(pool, served, row) for row in rows]))
    alone = [pool.done(pool.send(served, [index(pool, served, row)])) for row in rows]

    assert [(each.status, each.reason) for each in together.members] == [
        (MemberStatus.RETRY, Reason.MODEL_ERROR)
    ] * 4
    for place, done in enumerate(alone):
        (member,) = done.members
        if place != bad:
            assert member.status is MemberStatus.OK
            continue
        assert (member.status, member.reason) == (MemberStatus.FINAL, Reason.POISON)
        assert "idx=1000000 must be within the inclusive range" in member.text
        assert "/" not in member.text
    good = [answer.outputs[0] for answer in pool.answers()]
    assert [np.frombuffer(each.data, np.float32).tolist() for each in good] == [
        [4.0 * row, 4.0 * row + 1, 4.0 * row + 2, 4.0 * row + 3]
        for row in range(4)
        if row != bad
    ]


def test_an_unreadable_member_is_named_in_company(pool: Pool) -> None:
    put_version(pool.models, "words", "1", graphs.identity("BYTES"))
    pool.start()
    served = pool.served("words")
    texts = [b"ok", b"\xff", "ä".encode()]

    done = pool.done(
        pool.send(
            served,
            [pool.request(served, [((1, 1), pack_bytes([text]))]) for text in texts],
        )
    )

    assert [member.status for member in done.members] == [
        MemberStatus.RETRY,
        MemberStatus.FINAL,
        MemberStatus.RETRY,
    ]
    assert done.members[1].reason == Reason.POISON
    assert "not UTF-8" in done.members[1].text


def test_nan_and_infinities_pass_bit_by_bit(pool: Pool) -> None:
    put_version(pool.models, "log", "1", graphs.log())
    put_version(pool.models, "same", "1", graphs.identity("FP32"))
    pool.start()
    log, same = pool.served("log"), pool.served("same")
    odd = np.array([[-1, 0, 1, np.inf]], np.float32)
    bits = np.array([[0x7FC00001, 0xFF800000, 0x7F800001, 1]], np.uint32)

    pool.done(pool.send(log, [pool.request(log, [((1, 4), odd.tobytes())])]))
    pool.done(pool.send(same, [pool.request(same, [((1, 4), bits.tobytes())])]))

    first, second = (answer.outputs[0].data for answer in pool.answers())
    assert str(np.frombuffer(first, np.float32).tolist()) == "[nan, -inf, 0.0, inf]"
    assert bytes(second) == bits.tobytes()


def test_out_of_memory_is_told_and_the_worker_goes_on(pool: Pool) -> None:
    put_version(pool.models, "hog", "1", graphs.alloc(), "max_batch = 1")
    pool.start()
    served = pool.served("hog")

    def run(megabytes: list[int]):
        value = np.array(megabytes, np.int64).tobytes()
        done = pool.done(pool.send(served, [pool.request(served, [((2,), value)])]))
        return done.members[0]

    for _ in range(3):  # an arena that shrinks, a session made anew
        first, second, fine = run([2**40, 10]), run([2**40, 10]), run([2, 3])

        for failed in (first, second):
            assert (failed.status, failed.reason) == (MemberStatus.RETRY, Setback.OOM)
            assert "Failed to allocate memory" in failed.text
        assert fine.status is MemberStatus.OK


def test_a_reply_beyond_the_limit_is_final_and_its_neighbour_is_answered(
    pool: Pool,
) -> None:
    put_version(pool.models, "words", "1", graphs.identity("BYTES"))
    pool.start(bus__payload_bytes_max="10000")
    served = pool.served("words")
    texts = [b"a" * 20_000, b"b"]

    done = pool.done(
        pool.send(
            served,
            [pool.request(served, [((1, 1), pack_bytes([text]))]) for text in texts],
        )
    )

    large, small = done.members
    assert (large.status, large.reason) == (MemberStatus.FINAL, Reason.TOO_LARGE)
    assert "20004 bytes, at most 10000" in large.text
    assert small.status is MemberStatus.OK
    (answer,) = pool.answers()
    assert bytes(answer.outputs[0].data) == pack_bytes([b"b"])


def test_replies_of_one_batch_are_split_at_the_largest_record(pool: Pool) -> None:
    put_version(pool.models, "same", "1", graphs.identity("UINT8"))
    pool.start(bus__payload_bytes_max="40000", bus__batch_bytes_max="100000")
    served = pool.served("same")
    rows = [bytes([place]) * 40_000 for place in range(5)]

    done = pool.done(
        pool.send(served, [pool.request(served, [((1, 40_000), row)]) for row in rows])
    )

    assert {member.status for member in done.members} == {MemberStatus.OK}
    assert [len(each.answers) for each in pool.reply_envelopes()] == [2, 2, 1]
    assert [bytes(each.outputs[0].data) for each in pool.answers()] == rows


def test_a_plain_reader_gets_a_response_of_the_protocol(pool: Pool) -> None:
    topic = results_topic(pool.topics, "default", "nightly", pool.bus)
    pool.create(topic)
    put_version(pool.models, "lookup", "1", graphs.lookup())
    pool.start()
    served = pool.served("lookup")
    address = ReplyAddress(topic.name, None)

    done = pool.done(
        pool.send(
            served,
            [index(pool, served, row, reply_to=address, offset=row) for row in (3, 4)],
        )
    )

    assert {member.status for member in done.members} == {MemberStatus.OK}
    records = read_all(pool, topic.name, topic.partitions, 2)
    by_key = {record.key: record for record in records}
    assert sorted(by_key) == [b"r3", b"r4"]
    headers = dict(by_key[b"r3"].headers)
    assert headers["ce_id"] == b"r3"
    assert headers["inf-status"] == b"ok"
    assert headers["inf-source"] == f"{pool.topics.requests('lookup')}/2/3".encode()
    response = oip.ModelInferResponse.FromString(by_key[b"r3"].value)
    assert (response.model_name, response.model_version) == ("lookup", "1")
    assert list(response.outputs[0].shape) == [1, 4]
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [
        12,
        13,
        14,
        15,
    ]


def read_all(pool: Pool, topic: str, partitions: int, count: int) -> list:
    reader = KafkaReader(pool.bus.connection("plain"))
    places = [TopicPartition(topic, each) for each in range(partitions)]
    reader.assign(dict.fromkeys(places, 0))
    records: list = []

    def enough() -> bool:
        records.extend(reader.read(100, 0.05))
        return len(records) >= count

    pool.until(enough)
    reader.close()
    return records


def test_a_member_without_an_address_is_settled_without_a_reply(pool: Pool) -> None:
    put_version(pool.models, "lookup", "1", graphs.lookup())
    pool.start()
    served = pool.served("lookup")
    silent = pool.unanswered(index(pool, served, 1))

    done = pool.done(pool.send(served, [silent, index(pool, served, 2)]))

    assert [member.status for member in done.members] == [MemberStatus.OK] * 2
    assert [answer.id for answer in pool.answers()] == ["r2"]


def test_lengths_share_a_batch_where_the_manifest_says_how(pool: Pool) -> None:
    put_version(
        pool.models,
        "embedding",
        "1",
        graphs.embedding(),
        '[padding]\naxis = "sequence"\nedges = [4, 8]',
    )
    pool.start()
    served = pool.served("embedding")
    session = graphs_session(graphs.embedding())

    def texts(length: int) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.arange(length, dtype=np.int64)[None] + length,
            np.ones((1, length), np.int64),
        )

    lengths = [3, 1, 4]
    requests = [
        pool.request(
            served, [((1, n), array.tobytes()) for array in texts(n)], id_=f"n{n}"
        )
        for n in lengths
    ]
    pool.done(pool.send(served, requests))

    for answer, length in zip(pool.answers(), lengths, strict=True):
        ids, mask = texts(length)
        tokens, pooled = session.run(None, {"ids": ids, "mask": mask})
        got_tokens, got_pooled = answer.outputs
        assert got_tokens.shape == (1, length, 8)
        assert bytes(got_tokens.data) == tokens.tobytes()
        assert bytes(got_pooled.data) == pooled.tobytes()

    for _ in range(4):
        pool.done(pool.send(served, requests))
    told = pool.until(lambda: pool.announced("embedding")[-1].recent_runs)
    (runs,) = told.values()
    assert set(told) == {requests[0].shape}
    assert [rows for rows, _ in runs] == [3] * 5
    assert min(run_us for _, run_us in runs) > 0


def graphs_session(model: bytes):
    import onnxruntime  # noqa: PLC0415 - the yardstick, not the product's session

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )


def test_a_batch_for_a_version_that_is_not_here_goes_back(pool: Pool) -> None:
    put_version(pool.models, "lookup", "1", graphs.lookup())
    pool.start()
    served = pool.served("lookup")
    foreign = pool.renamed(served, version="7")

    done = pool.done(pool.send(foreign, [index(pool, foreign, 1)]))

    (member,) = done.members
    assert (member.status, member.reason) == (
        MemberStatus.RETRY,
        Reason.MODEL_UNAVAILABLE,
    )
    assert done.run_us == 0


def test_a_batch_past_its_latest_start_is_not_run(pool: Pool) -> None:
    put_version(pool.models, "lookup", "1", graphs.lookup())
    pool.start()
    served = pool.served("lookup")
    pool.wait_ready()

    done = pool.done(
        pool.send(served, [index(pool, served, 1)], latest_start_us=1_000_000)
    )

    assert done.run_us == 0
    assert (done.members[0].status, done.members[0].reason) == (
        MemberStatus.RETRY,
        "late",
    )


def test_two_batches_wait_in_memory_while_one_runs(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1", alpha_ms=300, beta_ms=0)
    worker = pool.start()
    served = pool.served("sim")
    row = pool.request(served, [((1, 4), bytes(16))])

    with pool.still(worker):
        first, second = pool.send(served, [row]), pool.send(served, [row])
        pool.ask(1)
    report = pool.report(1)
    done = [pool.done(first), pool.done(second)]

    assert [held.batch for held in report.held] == [first, second]
    assert report.models == {"sim/1"}
    # Each from where it was read to its run: of the second that is the first one's.
    assert done[1].wait_us > done[0].wait_us + 150_000
    assert min(each.run_us for each in done) >= 300_000


def test_a_batch_whose_record_is_copied_runs_once(pool: Pool) -> None:
    put_simulated(pool.models, "sim", "1", alpha_ms=30, beta_ms=0)
    worker = pool.start()
    served = pool.served("sim")
    row = pool.request(served, [((1, 4), bytes(16))])

    copied = [pool.send(served, [row], copies=50) for _ in range(2)]
    for batch in copied:
        pool.done(batch)
    pool.done(pool.send(served, [row]))

    done = [each.batch for each in pool.completed() if isinstance(each, Done)]
    assert [done.count(batch) for batch in copied] == [1, 1]
    assert pool.sync(1).held == ()
    assert worker.poll() is None


def test_a_ragged_output_is_whole_for_the_one_who_asked(pool: Pool) -> None:
    put_version(pool.models, "ragged", "1", zoo.ragged_out(), "max_batch = 1")
    pool.start()
    served = pool.served("ragged")
    x = np.array([[1, 1, 0, 0, 0, 0, 0, 1]], np.float32)

    pool.done(pool.send(served, [pool.request(served, [((1, 8), x.tobytes())])]))

    (answer,) = pool.answers()
    assert answer.outputs[0].shape == (3, 2)
    assert np.frombuffer(answer.outputs[0].data, np.int64).tolist() == [
        0,
        0,
        0,
        1,
        0,
        7,
    ]
