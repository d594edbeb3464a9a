"""Payloads that are too large for a record, through a folder that all processes see."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from headrace.broker import KafkaAdmin, KafkaConnection, NewTopic
from headrace.payloads import PayloadStore
from headrace.wire._generated.open_inference_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
)
from headrace.wire.payloads import dataref_bytes
from services.ctl.client import infer_request
from tests.end_to_end.platforms import Platform, eventually, outputs_of
from tests.end_to_end.test_cases import at_once
from tests.end_to_end.test_records import NAMES, put, reply_to

pytestmark = pytest.mark.kafka

WIDTH = 150_000
"""FP32 numbers of a row: two rows pass the 1 MiB of a record."""


def objects(payloads: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(payloads)): file.read_bytes()
        for file in payloads.rglob("*")
        if file.is_file() and file.name != "probe"
    }


def test_a_large_request_and_its_answer_come_through_the_store(
    platform: Platform, payloads: Path
) -> None:
    before = objects(payloads).keys()
    sent = np.arange(2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)
    got = platform.infer("identity_fp32", {"X": sent})

    assert np.array_equal(got["Y"], sent)
    made = [body for name, body in objects(payloads).items() if name not in before]
    assert made == [sent.tobytes()] * 2, "one for the request, one for its answer"


def test_a_large_answer_alone_comes_through_the_store(platform: Platform) -> None:
    got = platform.infer("spread", {"X": np.full((3, 1), 7, np.float32)})
    assert np.array_equal(got["Y"], np.full((3, 100_000), 7, np.float32))


def test_an_answer_that_the_store_does_not_take_is_told_as_that(
    platform: Platform, payloads: Path
) -> None:
    large = infer_request({"X": np.full((3, 1), 7, np.float32)})
    kept = payloads.with_name("away")
    payloads.rename(kept)
    payloads.touch()
    try:
        answer = platform.post("spread/infer", large.body, **large.headers)
    finally:
        payloads.unlink()
        kept.rename(payloads)
    reason = answer.headers["headrace-reason"]
    assert (answer.status_code, reason) == (503, "store_unavailable")
    assert "could not write" in answer.text


def test_a_kept_answer_is_given_again_from_the_store(platform: Platform) -> None:
    sent = infer_request({"X": np.full((2, WIDTH), 3, np.float32)})
    key = {"idempotency-key": uuid4().hex, **sent.headers}
    path = "identity_fp32/infer"
    first, second = (platform.post(path, sent.body, **key) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.content == second.content
    other = infer_request({"X": np.full((2, WIDTH), 4, np.float32)})
    assert platform.post(path, other.body, **key).status_code == 422

    asked = platform.post(path, sent.body, prefer="respond-async", **sent.headers)
    assert asked.status_code == 202
    later = platform.client.get(
        f"{platform.url}{asked.headers['location']}", params={"wait": 20}
    )
    assert outputs_of(later)["Y"].tobytes() == sent.body[-2 * WIDTH * 4 :]


async def test_a_store_that_hangs_is_told_as_that_and_holds_up_nobody(
    platform: Platform, payloads: Path
) -> None:
    """Who opens a pipe waits for the other side, as on a mount whose server is gone."""
    store = PayloadStore(f"file://{payloads}")
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    results = NAMES.results("default", f"claims-{uuid4().hex[:8]}")
    KafkaAdmin(connection).create_topics([NewTopic(results, 1, {})], 10.0)
    run = uuid4().hex
    hung = [store.write(f"20991231T00/default/{run}-{n}", [bytes(32)]) for n in (0, 1)]
    for ref in hung:
        (payloads / ref.name).unlink()
        os.mkfifo(payloads / ref.name)
    request = ModelInferRequest(model_name="identity_int64")
    request.inputs.add(name="X", datatype="INT64", shape=[1, 4])
    deadline_us = time.time_ns() // 1000 + 2_000_000
    for number, ref in enumerate(hung):
        headers = [
            ("ce_id", f"{run}-{number}".encode()),
            ("reply-topic", results.encode()),
            ("inf-dataref", dataref_bytes(ref)),
            ("inf-deadline", b"%d" % deadline_us),
        ]
        value = request.SerializeToString()
        await asyncio.to_thread(put, connection, "identity_int64", value, headers)
    eventually(lambda: platform.worker_value("batches_held") > 0)

    sent = np.arange(4, dtype=np.int64)[None]
    got = await asyncio.to_thread(platform.infer, "identity_int64", {"X": sent})
    ends = [await reply_to(connection, results, f"{run}-{n}") for n in (0, 1)]

    for ref in hung:
        with suppress(OSError):  # nobody waits for it any more
            os.close(os.open(payloads / ref.name, os.O_WRONLY | os.O_NONBLOCK))
        (payloads / ref.name).unlink()
    assert np.array_equal(got["Y"], sent)
    told = [dict(end.headers) for end in ends]
    assert [each["inf-reason"] for each in told] == [b"store_unavailable"] * 2


async def test_an_object_that_is_gone_or_changed_fails_its_request_alone(
    platform: Platform, payloads: Path
) -> None:
    store = PayloadStore(f"file://{payloads}")
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    results = NAMES.results("default", f"claims-{uuid4().hex[:8]}")
    KafkaAdmin(connection).create_topics([NewTopic(results, 1, {})], 10.0)
    row = np.arange(4, dtype=np.int64)
    request = ModelInferRequest(model_name="identity_int64")
    request.inputs.add(name="X", datatype="INT64", shape=[1, 4])
    run = uuid4().hex
    refs = {
        name: store.write(f"20991231T00/default/{run}-{name}", [row.tobytes()])
        for name in ("there", "gone", "changed")
    }
    (payloads / refs["gone"].name).unlink()
    (payloads / refs["changed"].name).write_bytes(bytes(32))
    assert sha256(bytes(32)).hexdigest() != refs["changed"].sha256

    # All of them wait behind a batch that runs, and ride together.
    async with asyncio.TaskGroup() as group:
        block = {"X": np.zeros((1, 4), np.float32)}
        group.create_task(at_once(platform, "blocker", [block]))
        await asyncio.to_thread(
            eventually, lambda: platform.worker_value("batches_held") > 0
        )
        for name, ref in refs.items():
            headers = [
                ("ce_id", f"{run}-{name}".encode()),
                ("reply-topic", results.encode()),
                ("inf-dataref", dataref_bytes(ref)),
            ]
            value = request.SerializeToString()
            await asyncio.to_thread(put, connection, "identity_int64", value, headers)
    ends = {name: await reply_to(connection, results, f"{run}-{name}") for name in refs}

    told = {name: dict(end.headers) for name, end in ends.items()}
    assert told["there"]["inf-status"] == b"ok"
    response = ModelInferResponse.FromString(ends["there"].value or b"")
    assert response.raw_output_contents == [row.tobytes()]
    for name in ("gone", "changed"):
        assert told[name]["inf-reason"] == b"payload_lost"
