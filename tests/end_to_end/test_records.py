"""Records put on a request topic by hand, with nothing of ours but the names."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from headrace.broker import (
    KafkaAdmin,
    KafkaConnection,
    NewTopic,
    Record,
    tail,
)
from headrace.domain import Priority
from headrace.wire import Topics
from headrace.wire._generated.open_inference_pb2 import (
    ModelInferRequest,
    ModelInferResponse,
)
from tests.architecture.checkout import ROOT
from tests.end_to_end.platforms import Platform
from tests.writing import writer_to

pytestmark = pytest.mark.kafka

NAMES = Topics()


def addsub_request(*, typed: bool) -> ModelInferRequest:
    """Two tensors INT32 [1, 16], raw or in the protocol's typed fields."""
    request = ModelInferRequest(model_name="addsub", id="mine")
    for name, value in (("INPUT0", 5), ("INPUT1", 2)):
        values = np.full(16, value, np.int32)
        tensor = request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        if typed:
            tensor.contents.int_contents.extend(values.tolist())
        else:
            request.raw_input_contents.append(values.tobytes())
    return request


async def reply_to(connection: KafkaConnection, topic: str, identity: str) -> Record:
    async with aclosing(tail(connection, topic, follow=True)) as records:
        async with asyncio.timeout(60):
            async for record in records:
                if dict(record.headers).get("ce_id") == identity.encode():
                    return record
    raise AssertionError("the topic ended")


def put(
    connection: KafkaConnection,
    model: str,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes]],
) -> None:
    producer = writer_to(connection.bootstrap_servers)
    partition = NAMES.request_partition(0, Priority.STANDARD)
    producer.produce(NAMES.requests(model), partition, value, headers=headers)
    assert producer.flush(10.0) == 0


@pytest.fixture
def results(platform: Platform) -> str:
    """A reply topic of this test."""
    topic = NAMES.results("default", f"by-hand-{uuid4().hex[:8]}")
    admin = KafkaAdmin(KafkaConnection(platform.document.bootstrap_servers, "test"))
    admin.create_topics([NewTopic(topic, 1, {})], 10.0)
    return topic


@pytest.mark.parametrize("typed", [False, True])
async def test_a_record_with_three_headers_is_answered(
    platform: Platform, results: str, *, typed: bool
) -> None:
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    identity = uuid4().hex
    headers = [
        ("ce_id", identity.encode()),
        ("inf-model", b"addsub"),
        ("reply-topic", results.encode()),
    ]

    put(connection, "addsub", addsub_request(typed=typed).SerializeToString(), headers)
    record = await reply_to(connection, results, identity)

    assert record.key == identity.encode()
    assert record.value is not None
    reply = ModelInferResponse.FromString(record.value)
    assert (reply.model_name, reply.model_version) == ("addsub", "1")
    assert [output.name for output in reply.outputs] == ["OUTPUT0", "OUTPUT1"]
    sums, differences = (
        np.frombuffer(raw, np.int32).tolist() for raw in reply.raw_output_contents
    )
    assert (sums, differences) == ([7] * 16, [3] * 16)
    source = dict(record.headers)["inf-source"]
    assert source is not None
    assert source.decode().startswith(f"{NAMES.requests('addsub')}/2/")


BY_HAND = """
rows, lanes = np.arange(192, dtype=np.float32).reshape(64, 3), 1
{loop}
sender.flush()
found = {{}}
while len(found) < 2 and (reply := reader.poll(30)):
    answer = ModelInferResponse.FromString(reply.value())
    found[reply.key().decode()] = np.frombuffer(answer.raw_output_contents[0], "<f4")
assert sorted(found) == ["night.0", "night.32"], sorted(found)
assert (np.concatenate([*map(found.get, sorted(found))]) == 2 * rows.ravel()).all()
"""


def test_the_examples_of_the_schemas_page_are_answered(
    platform: Platform, tmp_path: Path
) -> None:
    page = (ROOT / "schemas/README.md").read_text()
    example, loop = re.findall(
        r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    shell, answer = (
        re.search(pattern, page, re.DOTALL | re.MULTILINE)
        for pattern in (
            r"^\.venv/bin/python (-m grpc_tools.protoc .*?)$",
            r"^It prints `(.*?)`\.$",
        )
    )
    assert shell
    assert answer
    protoc = shell[1].replace("schemas", str(ROOT / "schemas")).split()
    subprocess.run([sys.executable, *protoc], cwd=tmp_path, check=True)
    servers = platform.document.bootstrap_servers

    code = example.replace("127.0.0.1:9092", servers)
    code += "import numpy as np" + BY_HAND.format(loop=loop.replace("1_000_000", "64"))

    printed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert printed.stdout.strip() == answer[1]


async def test_a_record_that_cannot_run_is_answered_with_its_reason(
    platform: Platform, results: str
) -> None:
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    identity = uuid4().hex
    request = addsub_request(typed=False)
    request.inputs[0].shape[:] = [1, 15]
    headers = [
        ("ce_id", identity.encode()),
        ("inf-model", b"addsub"),
        ("reply-topic", results.encode()),
    ]

    put(connection, "addsub", request.SerializeToString(), headers)
    record = await reply_to(connection, results, identity)

    found = dict(record.headers)
    assert (found["inf-status"], found["inf-reason"]) == (b"error", b"invalid")


async def test_good_records_around_a_bad_one_are_answered(
    platform: Platform, results: str
) -> None:
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    good = addsub_request(typed=False).SerializeToString()
    identities = [uuid4().hex for _ in range(2)]
    bad: list[tuple[bytes | None, list[tuple[str, bytes]]]] = [
        (None, []),
        (b"", []),
        (b"\xff" * 1024, [("ce_id", b"x")]),
        (good[:-5], [("ce_id", b"x"), ("inf-model", b"addsub")]),
        (good, [("ce_id", b"x"), ("inf-schema", b"99")]),
        (good, [("ce_id", b"x"), ("reply-topic", b"no-such-topic")]),
    ]
    around = [("inf-model", b"addsub"), ("reply-topic", results.encode())]
    before = await dead_letters(connection)

    put(connection, "addsub", good, [("ce_id", identities[0].encode()), *around])
    for value, headers in bad:
        put(connection, "addsub", value, headers)
    put(connection, "addsub", good, [("ce_id", identities[1].encode()), *around])

    for identity in identities:
        record = await reply_to(connection, results, identity)
        assert record.value is not None
        assert ModelInferResponse.FromString(record.value).model_name == "addsub"
    topic = NAMES.dead_letters("addsub")
    async with aclosing(tail(connection, topic, follow=True)) as letters:
        async with asyncio.timeout(60):
            for _ in range(before + len(bad)):
                await anext(letters)
    assert await dead_letters(connection) == before + len(bad)


async def dead_letters(connection: KafkaConnection) -> int:
    return len([r async for r in tail(connection, NAMES.dead_letters("addsub"))])
