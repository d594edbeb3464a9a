import asyncio
import threading
from queue import SimpleQueue

from headrace.broker import (
    LoopHandover,
    ProducerThread,
    ReaderThread,
    Record,
    TableReader,
    TopicPartition,
)
from headrace.errors import BusError, OffsetOutOfRange
from headrace.testing import Outage
from tests.broker.bench import (
    PATIENCE_S,
    Bench,
    MemoryBench,
    make_topic,
    values,
    write,
)


def taken(queue: "SimpleQueue[list[Record]]", count: int) -> list[bytes | None]:
    records: list[Record] = []
    while len(records) < count:
        records += queue.get(timeout=PATIENCE_S)
    return values(records)


def test_a_reader_thread_gives_batches_away_and_obeys_in_order(bench: Bench) -> None:
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b")
    one = TopicPartition(topic, 0)
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    errors: SimpleQueue[BusError] = SimpleQueue()
    thread = ReaderThread("test", bench.reader(), batches.put, errors.put)
    thread.do(lambda reader: reader.assign({one: 7}))
    thread.start()

    error = errors.get(timeout=PATIENCE_S)
    assert isinstance(error, OffsetOutOfRange)
    thread.do(lambda reader: reader.assign({one: 1}))
    assert taken(batches, 1) == [b"b"]
    thread.do(lambda reader: reader.assign({one: 0}))
    assert taken(batches, 2) == [b"a", b"b"]
    thread.stop()


def test_a_command_that_the_log_refuses_is_told_and_the_thread_goes_on(
    prefix: str,
) -> None:
    bench = MemoryBench(prefix)
    topic = make_topic(bench)
    errors: SimpleQueue[BusError] = SimpleQueue()
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    thread = ReaderThread("test", bench.reader(), batches.put, errors.put)
    nowhere = TopicPartition(f"{prefix}none", 0)
    thread.do(lambda reader: reader.assign({nowhere: reader.log_range(nowhere, 1).end}))
    thread.do(lambda reader: reader.assign({TopicPartition(topic, 0): 0}))
    thread.start()
    assert errors.get(timeout=PATIENCE_S).code == "UNKNOWN_TOPIC_OR_PART"
    write(bench, topic, b"a")
    assert taken(batches, 1) == [b"a"]
    thread.stop()


async def test_an_event_loop_is_woken_once_per_batch() -> None:
    loop = asyncio.get_running_loop()
    woken: list[list[int]] = []
    done = asyncio.Event()

    def handle(batch: list[int]) -> None:
        woken.append(batch)
        if len(woken) == 3:
            done.set()

    handover = LoopHandover(loop, handle)
    batches = [[1, 2], [3], [4, 5, 6]]
    thread = threading.Thread(target=lambda: [handover(one) for one in batches])
    thread.start()
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    thread.join()
    assert woken == batches


async def test_a_thread_waits_when_the_loop_does_not_keep_up() -> None:
    loop = asyncio.get_running_loop()
    handled: list[list[int]] = []
    handover = LoopHandover(loop, handled.append, batches_max=2)
    given: list[int] = []
    one_more = threading.Semaphore(0)

    def give() -> None:
        for number in range(5):
            handover([number])
            given.append(number)
            one_more.release()

    thread = threading.Thread(target=give)
    thread.start()
    # Blocks the loop on purpose: it handles nothing until the thread has to wait.
    assert one_more.acquire(timeout=PATIENCE_S)
    assert one_more.acquire(timeout=PATIENCE_S)
    assert not one_more.acquire(timeout=0.2)
    assert given == [0, 1]
    await asyncio.to_thread(thread.join, PATIENCE_S)
    await asyncio.sleep(0)
    assert handled == [[0], [1], [2], [3], [4]]


def test_reports_of_a_poll_can_be_handed_on_together(bench: Bench) -> None:
    topic = make_topic(bench)
    producer = bench.producer()
    reported: list[int] = []
    handed: SimpleQueue[int] = SimpleQueue()
    thread = ProducerThread("test", producer, lambda: handed.put(len(reported)))
    for _ in range(3):
        producer.produce(
            topic, 0, b"", on_delivery=lambda one: reported.append(one.offset)
        )
    thread.start()
    while handed.get(timeout=PATIENCE_S) < 3:
        continue
    assert reported == [0, 1, 2]
    assert thread.stop(flush_s=PATIENCE_S) == 0


def test_stopping_waits_for_outstanding_records_no_longer_than_asked(
    prefix: str,
) -> None:
    bench = MemoryBench(prefix)
    topic = make_topic(bench)
    producer = bench.producer()
    bench.broker.outage = Outage.DEAF
    producer.produce(topic, 0, b"")
    thread = ProducerThread("test", producer)
    thread.start()
    assert thread.stop(flush_s=0.01) == 1


def test_a_table_is_caught_up_when_all_that_lay_there_is_taken(bench: Bench) -> None:
    topic = make_topic(bench)
    producer = bench.producer()
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", None)):
        producer.produce(topic, 0, value, key=key)
    assert producer.flush(PATIENCE_S) == 0
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    release = threading.Event()

    def take(records: list[Record]) -> None:
        assert release.wait(PATIENCE_S)
        batches.put(records)

    table = TableReader(bench.reader(), topic, take, _none)
    table.start()
    assert not table.wait_caught_up(0.1)
    release.set()
    assert table.wait_caught_up(PATIENCE_S)

    assert taken(batches, 3) == [b"1", b"2", None]
    write(bench, topic, b"later")
    assert taken(batches, 1) == [b"later"]
    table.stop()


def test_a_table_of_many_batches_is_caught_up_with_the_last(prefix: str) -> None:
    bench = MemoryBench(prefix)
    topic = make_topic(bench)
    producer = bench.producer(queue_records_max=2000)
    for _ in range(1500):
        producer.produce(topic, 0, b"")
    told: SimpleQueue[bool] = SimpleQueue()
    table = TableReader(
        bench.reader(), topic, lambda _: told.put(table.caught_up), _none
    )
    table.start()
    assert table.wait_caught_up(PATIENCE_S)
    table.stop()
    # Asked inside each batch: caught up only when all of them are taken.
    assert [told.get(), told.get()] == [False, False]
    assert told.empty()


def test_an_empty_table_is_caught_up_at_once(bench: Bench) -> None:
    table = TableReader(bench.reader(), make_topic(bench), _none, _none)
    table.start()
    assert table.wait_caught_up(PATIENCE_S)
    table.stop()


def test_a_table_whose_log_was_cut_is_read_from_its_new_start(prefix: str) -> None:
    bench = MemoryBench(prefix)
    topic = make_topic(bench)
    write(bench, topic, b"a", b"b", b"c")
    batches: SimpleQueue[list[Record]] = SimpleQueue()
    errors: SimpleQueue[BusError] = SimpleQueue()
    reader = bench.reader()
    table = TableReader(reader, topic, batches.put, errors.put)
    table.start()
    assert taken(batches, 3) == [b"a", b"b", b"c"]

    bench.broker.outage = Outage.DEAF
    reader.assign({TopicPartition(topic, 0): 0})
    bench.cut(TopicPartition(topic, 0), 2)
    bench.broker.outage = None

    assert isinstance(errors.get(timeout=PATIENCE_S), OffsetOutOfRange)
    assert taken(batches, 1) == [b"c"]
    table.stop()


def _none(value: object) -> None:
    raise AssertionError(value)
