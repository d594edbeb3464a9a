"""Records that nobody survives, and records that no letter can hold: each ends once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headrace.domain import Priority, Reason
from headrace.wire import decode_dead_letter
from headrace.wire import headers as names
from tests.services.batch_former import mortal
from tests.services.batch_former.hands import Former, Worker
from tests.services.batch_former.mortal import LETHAL
from tests.services.batch_former.pool import MODEL, Pool, until

pytestmark = pytest.mark.kafka

StartFormer = Callable[..., Former]
StartWorker = Callable[..., Worker]


def test_a_killer_is_a_dead_letter_and_its_lane_goes_on_also_after_a_restart(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    killer, *others = pool.requests(4, served, timeout_s=60.0)
    former = start_former(pool)
    began = time.monotonic()
    worker, answered, deaths = start_worker(pool), [], 0
    while len(answered) < len(others):
        batch = worker.next_batch()
        if killer in batch.ids:
            worker.crash()
            deaths += 1
            worker = start_worker(pool, previous_exit="signal:SIGSEGV")
        else:
            answered += batch.ids
            worker.finish(batch)
    letters = pool.reading(pool.topics.dead_letters(MODEL))
    until("the dead letter", letters.look)

    assert deaths == 2  # known by its signal: alone at once
    assert sorted(answered) == sorted(others)
    (letter,) = [decode_dead_letter(record).letter for record in letters.records]
    assert (letter.id, letter.reason, letter.source.offset) == (
        killer,
        Reason.CRASH,
        0,
    )
    until("all is committed", lambda: pool.depth().committed == 4)
    assert time.monotonic() - began < 20

    former.kill()
    start_former(pool)
    last = pool.requests(1, served)
    assert worker.serve(1)[0].ids == last
    assert len(letters.look()) == 1


def test_a_record_that_kills_its_former_is_a_dead_letter_and_the_lane_goes_on(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    before = pool.requests(2, served, timeout_s=120.0)
    topic = pool.topics.requests(MODEL)
    partition = pool.topics.request_partition(0, Priority.STANDARD)
    headers = [("ce_id", b"lethal")]
    lethal = pool.produce(topic, partition, LETHAL.encode(), headers=headers)
    behind = pool.requests(2, served, timeout_s=120.0)
    worker = start_worker(pool)
    letters = pool.reading(pool.topics.dead_letters(MODEL))

    deaths = 0
    while not letters.look():
        former = start_former(pool, module=mortal.__name__)
        until(
            "its death or the letter",
            lambda: former.process.poll() is not None or letters.look(),  # noqa: B023 - asked at once
        )
        deaths += former.process.poll() is not None
    answered = [each for batch in worker.serve(4) for each in batch.ids]

    assert deaths == 4, "two in company, two by itself"
    assert sorted(answered) == sorted(before + behind)
    (record,) = letters.records
    buried = decode_dead_letter(record)
    assert (buried.letter.reason, buried.letter.source.offset) == (Reason.CRASH, lethal)
    assert buried.value == LETHAL.encode()
    until("all is committed", lambda: pool.depth().committed == 5)


def test_every_kind_of_bad_record_is_buried_once_also_after_a_restart(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    """Case G2: each of them between good ones."""
    served = pool.announce(0)
    topic = pool.topics.requests(MODEL)
    good = pool.requests(1, served, timeout_s=60.0)
    (sound,) = until("a sound record", pool.reading(topic, 2).look)
    assert sound.value is not None
    bad: list[tuple[bytes | None, dict[str, bytes | None] | None, Reason]] = [
        (b"", {}, Reason.INVALID),
        (None, {}, Reason.UNDECODABLE),
        (random.Random(1).randbytes(1024), {}, Reason.UNDECODABLE),
        (sound.value[: len(sound.value) // 2], {}, Reason.UNDECODABLE),
        (sound.value, {names.SCHEMA: b"99"}, Reason.UNDECODABLE),
        (sound.value, None, Reason.INVALID),
        (sound.value, {names.CE_ID: None}, Reason.INVALID),
        (sound.value, {names.REPLY_TOPIC: b"elsewhere"}, Reason.REPLY_ADDRESS),
        (sound.value, {names.REPLY_PARTITION: b"999"}, Reason.REPLY_ADDRESS),
        (sound.value, {names.MODEL: b"absent"}, Reason.INVALID),
        (sound.value, {names.VERSION: b"77"}, Reason.MODEL_UNKNOWN),
    ]
    buried: dict[int, Reason] = {}
    for number, (value, changed, reason) in enumerate(bad):
        headers = dict(sound.headers) | {names.CE_ID: f"bad {number}".encode()}
        headers = {} if changed is None else headers | changed
        offset = pool.produce(
            topic, 2, value, key=b"\xff", headers=list(headers.items())
        )
        buried[offset] = reason
        good += pool.requests(1, served, timeout_s=60.0)
    worker = start_worker(pool)
    former = start_former(pool)
    answered = [each for batch in worker.serve(len(good)) for each in batch.ids]
    letters = pool.reading(pool.topics.dead_letters(MODEL))
    until("the dead letters", lambda: len(letters.look()) == len(bad))
    until("all is committed", lambda: pool.depth().committed == len(bad) + len(good))

    former.kill()
    start_former(pool)
    last = pool.requests(1, served)
    assert worker.serve(1)[0].ids == last

    found = [decode_dead_letter(record).letter for record in letters.records]
    assert sorted(answered) == sorted(good)
    assert {each.source.offset: each.reason for each in found} == buried
    assert {each.source[:2] for each in found} == {(topic, 2)}
    assert len(letters.look()) == len(bad)


def test_a_record_too_large_for_its_letter_leaves_one_without_it(
    pool: Pool, start_former: StartFormer, start_worker: StartWorker
) -> None:
    served = pool.announce(0)
    topic = pool.topics.requests(MODEL)
    allow(pool, topic, 4 * 1024 * 1024)
    huge = b"\xff" * (2 * 1024 * 1024)
    pool.produce(topic, 2, huge, headers=[(names.CE_ID, b"huge")])
    sent = pool.requests(1, served)
    worker = start_worker(pool)
    start_former(pool)

    assert worker.serve(1)[0].ids == sent
    letters = pool.reading(pool.topics.dead_letters(MODEL))
    until("the dead letter", letters.look)
    (buried,) = [decode_dead_letter(record) for record in letters.records]
    assert (buried.letter.id, buried.value) == ("huge", None)
    assert (buried.letter.source.topic, buried.letter.source.offset) == (topic, 0)
    until("all is committed", lambda: pool.depth().committed == 2)


def allow(pool: Pool, topic: str, record_bytes: int) -> None:
    """Let the topic take larger records than ours ever are."""
    entry = ConfigEntry(
        "max.message.bytes",
        str(record_bytes),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": pool.bus.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)
