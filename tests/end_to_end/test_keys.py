"""The same idempotency key gets the same answer, and its request runs once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import pytest

from headrace.broker import KafkaConnection, records_since
from headrace.wire import keyed_id
from services.ctl.deadletters import redrive_letters
from services.ctl.letters import Fate, Letter, chosen, read_letters
from tests.end_to_end.platforms import Platform, eventually
from tests.end_to_end.test_failures import is_ready
from tests.end_to_end.test_records import NAMES

pytestmark = pytest.mark.kafka

T = TypeVar("T")

PATIENT = {"headrace-timeout-ms": "60000"}
AHEAD = {"headrace-timeout-ms": "30000", "Prefer": "respond-async"}
"""Of eight seconds of work, which go first by their time limit."""


def a_body(value: float = 1.0) -> dict[str, Any]:
    data = [value] * 4
    one = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": data}
    return {"id": "mine", "inputs": [one]}


def ask(
    url: str, key: str, model: str = "quick", value: float = 1.0, **headers: str
) -> httpx.Response:
    return httpx.post(
        f"{url}/v2/models/{model}/infer",
        json=a_body(value),
        headers={"idempotency-key": key, **headers},
        timeout=30,
    )


def in_time(attempt: Callable[[], T | None]) -> T:
    """What came of an attempt that a busy machine was not too slow for."""
    found = (attempt() for _ in range(20))
    return next(each for each in found if each is not None)


def runs(platform: Platform, key: str, model: str = "quick") -> int:
    """Answers that the log keeps for the key."""
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    wanted = keyed_id("default", model, key).encode()
    return sum(
        record.key == wanted
        for record in records_since(connection, lambda one: ".keyed" in one.topic)
    )


def test_the_same_key_gets_the_same_answer_from_any_ingress(
    platform: Platform,
) -> None:
    key = uuid4().hex
    urls = platform.document.http * 2
    first, *others = [ask(url, key) for url in urls]

    assert first.status_code == 200
    assert first.json()["outputs"][0]["data"] == [1.0] * 4
    for other in others:
        assert other.content == first.content
        for name in ("content-type", "headrace-request-id"):
            assert other.headers[name] == first.headers[name]
    assert runs(platform, key) == 1


def test_duplicates_at_the_same_time_wait_for_the_first(platform: Platform) -> None:
    key = uuid4().hex
    urls = platform.document.http * 4
    with ThreadPoolExecutor(len(urls)) as clients:
        answers = list(clients.map(lambda url: ask(url, key, "paced"), urls))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert runs(platform, key, "paced") == 1


def test_a_key_stands_for_one_request(platform: Platform) -> None:
    key = uuid4().hex
    first, second = platform.document.http
    assert ask(first, key).status_code == 200
    for url in (first, second):
        other = ask(url, key, value=2.0)
        assert (other.status_code, other.headers["headrace-reason"]) == (
            422,
            "key_reused",
        )
    assert ask(second, key).status_code == 200
    # A key is its tenant's and its model's.
    assert ask(first, key, value=2.0, **{"headrace-tenant": "acme"}).status_code == 200
    assert ask(first, key, "paced", value=2.0).status_code == 200


def test_a_key_of_another_request_gives_nobody_its_answer_later(
    platform: Platform,
) -> None:
    """Nor does a DELETE take back the other's."""

    def asked(value: float) -> httpx.Response:
        return ask(platform.url, key, "paced", value, Prefer="respond-async", **PATIENT)

    def two() -> tuple[str, str] | None:
        nonlocal key
        key = uuid4().hex
        first, other = asked(1.0), asked(2.0)
        # Where the first has its answer already, the other is told so at once.
        if other.status_code == 422:
            return None
        base = platform.document.http[1]
        one, two = (f"{base}{each.headers['location']}" for each in (first, other))
        return one, two

    key = ""
    first, other = in_time(two)
    platform.client.delete(other)
    mine, others = (
        platform.client.get(f"{url}?wait=20", timeout=30) for url in (first, other)
    )

    assert mine.status_code == 200
    assert mine.json()["outputs"][0]["data"] == [1.0] * 4
    for told in (others, platform.client.delete(other), asked(2.0)):
        assert (told.status_code, told.headers["headrace-reason"]) == (
            422,
            "key_reused",
        )


def test_a_cancelled_request_stays_so_when_its_key_is_used_anew(
    platform: Platform,
) -> None:
    def cancelled() -> tuple[str, str] | None:
        ahead = [ask(platform.url, uuid4().hex, "lone", **AHEAD) for _ in range(6)]
        key = uuid4().hex
        accepted = ask(platform.url, key, "lone", Prefer="respond-async", **PATIENT)
        path: str = accepted.headers["location"]
        for each in (path, *(one.headers["location"] for one in ahead)):
            platform.client.delete(f"{platform.url}{each}")
        answer = platform.client.get(f"{platform.url}{path}?wait=20", timeout=30)
        return (key, path) if answer.status_code == 499 else None

    key, path = in_time(cancelled)
    assert ask(platform.url, key, "lone", 2.0, **PATIENT).status_code == 200

    for ingress in platform.document.http:
        again = platform.client.get(f"{ingress}{path}")
        assert (again.status_code, again.headers["headrace-reason"]) == (
            499,
            "cancelled",
        )


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\u00e4", '"open'])
def test_a_key_that_is_none_is_refused(platform: Platform, key: str) -> None:
    answer = httpx.post(
        f"{platform.url}/v2/models/quick/infer",
        json=a_body(),
        headers=[(b"idempotency-key", key.encode("latin-1"))],
    )
    assert answer.status_code == 400
    assert "idempotency-key" in answer.json()["error"]


def test_a_key_in_quotes_is_the_key(platform: Platform) -> None:
    key = uuid4().hex
    bare, quoted = ask(platform.url, key), ask(platform.url, f'"{key}"')
    assert bare.headers["headrace-request-id"] == quoted.headers["headrace-request-id"]


def test_an_answer_under_a_key_can_be_asked_for_later(platform: Platform) -> None:
    key = uuid4().hex
    at_once = ask(platform.url, key)
    accepted = ask(platform.url, key, Prefer="respond-async")
    assert accepted.status_code == 202
    url = f"{platform.document.http[1]}{accepted.headers['location']}?wait=20"
    later = platform.client.get(url)
    assert (later.status_code, later.content) == (200, at_once.content)
    assert runs(platform, key) == 1


def test_a_refusal_that_invites_a_retry_does_not_take_the_key(
    platform: Platform,
) -> None:
    key = uuid4().hex
    refused = ask(platform.url, key, "paced", **{"headrace-timeout-ms": "1"})
    assert refused.status_code in {503, 504}
    assert ask(platform.url, key, "paced").status_code == 200


def test_a_dead_letter_that_is_put_back_runs_under_its_key(platform: Platform) -> None:
    """Once, however often it is put back."""
    key = uuid4().hex
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")

    def moody(value: int, key: str = "") -> httpx.Response:
        data = {"name": "X", "shape": [1, 1], "datatype": "INT64", "data": [value]}
        headers = {"idempotency-key": key} if key else {}
        return platform.post("moody/infer", {"inputs": [data]}, **headers)

    def letters() -> list[Letter]:
        written = list(read_letters(connection, NAMES, ["moody"], 0))
        return chosen(written, keyed_id("default", "moody", key))

    def redriven() -> str:
        (row,) = redrive_letters(connection, NAMES, [letter])
        return row.fate

    assert moody(5).status_code == 200
    assert moody(-9, key).headers["headrace-reason"] == "model_error"
    # No breaker opens over five failures in a row.
    assert moody(5).status_code == 200
    # Its answer may be there a moment before its letter is.
    eventually(lambda: len(letters()) > 0)
    (letter,) = letters()
    assert [redriven(), redriven()] == [Fate.SENT, Fate.REDRIVEN]
    eventually(lambda: runs(platform, key, "moody") == 2)
    assert moody(5).status_code == 200
    assert moody(-9, key).headers["headrace-reason"] == "model_error"
    assert runs(platform, key, "moody") == 2


def test_a_cancelled_request_does_not_keep_its_key(platform: Platform) -> None:
    key = uuid4().hex
    ahead = [ask(platform.url, uuid4().hex, "lone", **AHEAD) for _ in range(6)]
    accepted = ask(platform.url, key, "lone", Prefer="respond-async")
    first, second = platform.document.http
    for each in (accepted, *reversed(ahead)):
        url = f"{second}{each.headers['location']}"
        assert platform.client.delete(url).status_code in {204, 409}

    answer = ask(first, key, "lone", **PATIENT)
    assert answer.status_code == 200
    assert ask(second, key, "lone", **PATIENT).content == answer.content


def test_a_killed_ingress_takes_no_answer_with_it(platform: Platform) -> None:
    """Its client sees the connection end, and gets the answer from another."""
    key = uuid4().hex
    first, second = platform.document.http
    before = [
        platform.client.post(
            f"{second}/v2/models/lone/infer", json=a_body(), headers=AHEAD
        )
        for _ in range(80)
    ]
    assert {answer.status_code for answer in before} == {202}
    with ThreadPoolExecutor(1) as clients:
        cut = clients.submit(ask, first, key, "lone", **PATIENT)
        eventually(lambda: is_asked(platform, key, "lone"))
        os.kill(platform.pids("ingress")[0], signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            cut.result(30)
    # Those that wait first: a delete of one that runs has to wait for its end.
    for answer in reversed(before):
        platform.client.delete(f"{second}{answer.headers['location']}")

    answer = ask(second, key, "lone", **PATIENT)
    assert answer.json()["outputs"][0]["data"] == [1.0] * 4
    eventually(lambda: is_ready(first), within_s=60)
    assert ask(first, key, "lone", **PATIENT).content == answer.content
    assert runs(platform, key, "lone") == 1


def test_a_killed_former_forgets_no_key(platform: Platform) -> None:
    key = uuid4().hex
    answer = ask(platform.url, key)
    os.kill(platform.pids("batch_former")[0], signal.SIGKILL)
    # Asked at the other ingress as soon as it takes requests in again; the record
    # reaches the former that has to know the key from the log alone.
    later = ask(platform.document.http[1], key, Prefer="respond-async")
    if later.status_code == 503:
        eventually(lambda: ask(platform.document.http[1], uuid4().hex).is_success)
        later = ask(platform.document.http[1], key, Prefer="respond-async")
    assert later.status_code == 202
    eventually(lambda: ask(platform.document.http[1], uuid4().hex).is_success)
    assert ask(platform.document.http[1], key).content == answer.content
    assert runs(platform, key) == 1


def is_asked(platform: Platform, key: str, model: str) -> bool:
    """Whether its request lies in the log."""
    connection = KafkaConnection(platform.document.bootstrap_servers, "test")
    wanted = keyed_id("default", model, key).encode()
    return any(
        dict(record.headers).get("ce_id") == wanted
        for record in records_since(
            connection, lambda one: f"requests.{model}" in one.topic
        )
    )
