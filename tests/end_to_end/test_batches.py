"""Files and batches, driven by OpenAI's own client."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.end_to_end.platforms import Direct, Platform, eventually

pytestmark = pytest.mark.kafka

LINES = 300
ENDPOINT = "/v2/models/digits_mlp/infer"
ENDS = {"completed", "failed", "expired", "cancelled"}


def a_client(url: str, tenant: str = "batches") -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{url}/v1",
        api_key="none",
        max_retries=0,
        default_headers={"headrace-tenant": tenant},
    )


@pytest.fixture(scope="module")
def clients(platform: Platform) -> Iterator[list[openai.OpenAI]]:
    """One of each ingress."""
    clients = [a_client(url) for url in platform.document.http]
    yield clients
    for client in clients:
        client.close()


def a_line(name: str, values: list[float], url: str = ENDPOINT) -> dict[str, Any]:
    given = {"name": "X", "shape": [1, 64], "datatype": "FP32", "data": values}
    body = {"id": f"mine-{name}", "inputs": [given]}
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


def upload(client: openai.OpenAI, lines: list[Any]) -> str:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    content = io.BytesIO("\n".join(texts).encode())
    file = client.files.create(
        file=("in.jsonl", content),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert file.expires_at == file.created_at + 3600
    return file.id


def begin(client: openai.OpenAI, file_id: str, endpoint: str = ENDPOINT) -> str:
    batch = client.batches.create(
        input_file_id=file_id,
        endpoint=endpoint,  # type: ignore[arg-type] # ours are not in its list
        completion_window="1h",
        metadata={"of": "a test"},
        output_expires_after={"anchor": "created_at", "seconds": 7200},
    )
    assert batch.status == "validating"
    return batch.id


def ended(client: openai.OpenAI, name: str) -> Any:
    eventually(lambda: client.batches.retrieve(name).status in ENDS, 60, 0.1)
    return client.batches.retrieve(name)


def read(client: openai.OpenAI, file_id: str) -> list[dict[str, Any]]:
    content = client.files.content(file_id)
    return [json.loads(line) for line in content.text.splitlines()]


def test_a_batch_goes_round(platform: Platform, clients: list[openai.OpenAI]) -> None:
    first, second = clients
    values = np.random.default_rng(7).integers(0, 17, (LINES, 64)).astype(np.float32)
    good = [a_line(f"row-{at}", row.tolist()) for at, row in enumerate(values)]
    bad = [
        "nonsense",
        a_line("row-3", [0] * 64),
        a_line("elsewhere", [0] * 64, "/v2/models/quick/infer"),
        a_line("short", [0] * 3),
    ]
    lines: list[Any] = [*good[:100], *bad, "", *good[100:]]

    name = begin(first, upload(first, lines))
    assert second.batches.retrieve(name).id == name
    batch = ended(second, name)

    assert batch.status == "completed"
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (304, 300, 4)
    assert batch.metadata == {"of": "a test"}
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at
    file = second.files.retrieve(batch.output_file_id)
    assert file.expires_at == file.created_at + 7200
    results = read(second, batch.output_file_id)
    assert [each["custom_id"] for each in results] == [f"row-{n}" for n in range(LINES)]
    bodies = [each["response"]["body"] for each in results]
    assert [each["id"] for each in bodies] == [f"mine-row-{n}" for n in range(LINES)]
    model = platform.models / "digits_mlp" / "1" / "model.onnx"
    for place, (output, expected) in enumerate(Direct(model)({"X": values}).items()):
        found = [body["outputs"][place]["data"] for body in bodies]
        assert bodies[0]["outputs"][place]["name"] == output
        np.testing.assert_allclose(
            np.array(found).reshape(expected.shape), expected, rtol=1e-5, atol=1e-6
        )
    errors = read(first, batch.error_file_id)
    assert [
        (each["custom_id"], each["error"]["code"], each["error"]["line"])
        for each in errors
    ] == [
        (None, "invalid_json_line", 101),
        ("row-3", "duplicate_custom_id", 102),
        ("elsewhere", "invalid_url", 103),
        ("short", "invalid", 104),
    ]
    assert [file.purpose for file in first.files.list(limit=2)] != []
    assert next(iter(second.batches.list())).id == name


def test_a_cancelled_batch_keeps_what_has_run(clients: list[openai.OpenAI]) -> None:
    first, second = clients
    endpoint = "/v2/models/lone/infer"
    given = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    call = {"method": "POST", "url": endpoint, "body": {"inputs": [given]}}
    lines = [{"custom_id": f"{at}", **call} for at in range(200)]
    name = begin(first, upload(first, lines), endpoint)
    eventually(lambda: second.batches.retrieve(name).request_counts.completed > 0, 60)

    assert first.batches.cancel(name).status in {"cancelling", "cancelled"}
    batch = ended(second, name)

    assert batch.status == "cancelled"
    results = read(first, batch.output_file_id)
    errors = read(first, batch.error_file_id)
    told = [each["custom_id"] for each in [*results, *errors]]
    assert sorted(told, key=int) == [line["custom_id"] for line in lines]
    assert {each["error"]["code"] for each in errors} == {"batch_cancelled"}
    with pytest.raises(openai.ConflictError, match="it cannot be cancelled"):
        first.batches.cancel(name)


def test_a_file_without_lines_fails_its_batch(clients: list[openai.OpenAI]) -> None:
    first, second = clients
    batch = ended(second, begin(first, upload(first, ["", "  "])))
    assert batch.status == "failed"
    assert batch.errors.data[0].message == "the file has no lines"
    assert batch.output_file_id is None


def test_files_are_their_tenants_and_can_be_deleted(
    platform: Platform, clients: list[openai.OpenAI]
) -> None:
    first, second = clients
    name = upload(first, ["x" * 3_000_000])
    assert second.files.retrieve(name).bytes == 3_000_000
    assert second.files.content(name).content == b"x" * 3_000_000
    with (
        a_client(platform.url, "other") as other,
        pytest.raises(openai.NotFoundError, match="no such file"),
    ):
        other.files.retrieve(name)
    assert second.files.delete(name).deleted
    with pytest.raises(openai.NotFoundError):
        first.files.retrieve(name)


def test_what_is_wrong_is_told_in_the_apis_form(
    platform: Platform, clients: list[openai.OpenAI]
) -> None:
    client, _ = clients
    file_id = upload(client, [""])
    wrong: list[tuple[dict[str, Any], str | None]] = [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"input_file_id": "file-1"}, "input_file_id"),
        ({"endpoint": "/v2/models/nobody/infer"}, None),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
    ]
    good = {
        "input_file_id": file_id,
        "endpoint": ENDPOINT,
        "completion_window": "24h",
    }
    for changes, param in wrong:
        answer = platform.client.post(
            f"{platform.url}/v1/batches",
            json=good | changes,
            headers={"headrace-tenant": "batches"},
        )
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
        assert answer.status_code in {400, 404}
    with pytest.raises(openai.NotFoundError, match="no such batch"):
        client.batches.retrieve("batch_1")
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=io.BytesIO(b"{}"), purpose="vision")
    asked = platform.client.build_request("PUT", f"{platform.url}/v1/files")
    refused: httpx.Response = platform.client.send(asked)
    assert refused.status_code == 405
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
