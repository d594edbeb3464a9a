"""The AsyncAPI document: topics that follow from it, records that keep to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from headrace.domain import DeadLetter, Priority, Reason, ReplyAddress, Source
from headrace.lifecycle import BusSettings
from headrace.wire import (
    JSON_HEADERS,
    PROTOBUF_HEADERS,
    Headers,
    NewTopic,
    RequestEncoder,
    Topics,
    base_topics,
    dead_letter,
    model_topics,
    plain_refusal,
    plain_reply,
    results_topic,
)
from headrace.wire.headers import REQUEST_HEADERS
from headrace.wire.topology import document
from tests.wire.records import (
    AN_INGRESS,
    EPOCH_US,
    PLAIN,
    a_new_request,
    a_record,
    a_request,
)
from tests.wire.test_replies import a_batch, a_terminal

SCHEMAS = Path(__file__).parents[2] / "schemas"
DEFAULTS = BusSettings()
TOPICS = Topics("headrace", "default", "default")
HOUR_MS = 3_600_000


def all_topics(settings: BusSettings) -> dict[str, NewTopic]:
    topics = [
        *base_topics(settings.topics, settings),
        *model_topics(settings.topics, "digits", settings),
        results_topic(settings.topics, "acme", "scan", settings),
    ]
    return {topic.name: topic for topic in topics}


def test_the_document_spells_the_names_that_the_code_does() -> None:
    topics = BusSettings(prefix="p.x", pool="fast", cell="east").topics
    assert set(all_topics(BusSettings(prefix="p.x", pool="fast", cell="east"))) == {
        topics.requests("digits"),
        topics.dead_letters("digits"),
        topics.results("acme", "scan"),
        topics.lanes,
        topics.batches,
        topics.completions,
        topics.replies,
        topics.status,
        topics.control_models,
        topics.control_jobs,
    }


def test_partitions_follow_from_the_settings() -> None:
    settings = BusSettings(lanes=3, worker_slots=5, ingress_slots=7)
    assert {name: topic.partitions for name, topic in all_topics(settings).items()} == {
        "headrace.requests.digits": 12,
        "headrace.deadletters.digits": 1,
        "headrace.results.acme.scan": 4,
        "headrace.lanes.default": 3,
        "headrace.batches.default": 5,
        "headrace.completions.default": 3,
        "headrace.replies.default": 7,
        "headrace.control.models": 1,
        "headrace.control.jobs": 1,
        "headrace.status": 1,
    }


def test_history_and_sizes_follow_from_the_settings() -> None:
    settings = BusSettings(
        history_hours=2,
        history_bytes=5_000_000,
        payload_bytes_max=1000,
        batch_bytes_max=2000,
    )
    topics = all_topics(settings)
    for name in ("requests.digits", "completions.default", "replies.default"):
        config = topics[f"headrace.{name}"].config
        assert config["retention.ms"] == str(2 * HOUR_MS)
        assert config["retention.bytes"] == "5000000"
    assert topics["headrace.requests.digits"].config["max.message.bytes"] == "66536"
    assert topics["headrace.batches.default"].config["max.message.bytes"] == "1050576"
    assert topics["headrace.batches.default"].config["retention.ms"] == str(HOUR_MS)


def test_without_a_cap_in_bytes_there_is_none() -> None:
    config = all_topics(DEFAULTS)["headrace.requests.digits"].config
    assert config["retention.bytes"] == "-1"


def test_every_topic_keeps_the_brokers_time() -> None:
    for topic in all_topics(DEFAULTS).values():
        assert topic.config["message.timestamp.type"] == "LogAppendTime"


def test_policies_are_those_of_the_design() -> None:
    policies = {
        name: topic.config["cleanup.policy"]
        for name, topic in all_topics(DEFAULTS).items()
    }
    assert {name for name, policy in policies.items() if policy != "delete"} == {
        "headrace.control.models",
        "headrace.control.jobs",
        "headrace.results.acme.scan",
    }
    assert policies["headrace.results.acme.scan"] == "compact,delete"


def test_the_document_shows_what_the_default_settings_give() -> None:
    shown = {}
    names = {"model": "digits", "tenant": "acme", "job": "scan", **TOPICS._asdict()}
    for channel in document()["channels"].values():
        binding = channel["bindings"]["kafka"]
        config = {
            name: ",".join(value) if isinstance(value, list) else str(value)
            for name, value in binding["topicConfiguration"].items()
        }
        name = channel["address"].format(**names)
        shown[name] = NewTopic(name, binding["partitions"], config)
    assert shown == all_topics(DEFAULTS)


def references(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [each for inner in value.values() for each in references(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in references(inner)]
    return []


def test_everything_that_the_document_refers_to_is_there() -> None:
    found = references(document())
    assert len(found) > 40
    for reference in found:
        place, _, path = reference.partition("#")
        if place:
            text = (SCHEMAS / place).read_text()
            message = path.rpartition(".")[2]
            assert not message or f"message {message} {{" in text
            continue
        value: Any = document()
        for key in path.strip("/").split("/"):
            value = value[key]


def test_the_document_lists_every_header_of_a_request_and_every_reason() -> None:
    schemas = document()["components"]["schemas"]
    assert set(REQUEST_HEADERS) <= set(schemas["requestHeaders"]["properties"])
    assert schemas["reason"]["enum"] == list(Reason)


def check_headers(message: str, headers: Headers) -> None:
    """Hold headers against the document's schema of this message."""
    reference = document()["components"]["messages"][message]["headers"]["$ref"]
    registry: Registry[Any] = Registry().with_resource(
        "urn:log", DRAFT202012.create_resource(document())
    )
    validator = jsonschema.Draft202012Validator(
        {"$ref": f"urn:log{reference}"}, registry=registry
    )
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names)
    validator.validate({name: (value or b"").decode() for name, value in headers})


@pytest.mark.parametrize("deadline_us", [None, EPOCH_US])
@pytest.mark.parametrize("reply_to", [None, AN_INGRESS, PLAIN])
@pytest.mark.parametrize("priority", Priority)
def test_what_an_ingress_writes_keeps_to_the_document(
    deadline_us: int | None, reply_to: ReplyAddress | None, priority: Priority
) -> None:
    request = a_new_request(
        deadline_us=deadline_us, priority=priority, traceparent="00-1-2-01"
    )
    headers, _ = RequestEncoder("headrace/ingress/0", reply_to).encode(
        request, EPOCH_US
    )
    check_headers("request", headers)
    properties = document()["components"]["schemas"]["requestHeaders"]["properties"]
    assert {name for name, _ in headers} <= set(properties)


def test_a_request_by_hand_may_have_little() -> None:
    check_headers("request", [("ce_id", b"mine"), ("inf-model", b"digits")])
    with pytest.raises(jsonschema.ValidationError, match="'ce_id' is a required"):
        check_headers("request", [("inf-model", b"digits")])
    with pytest.raises(jsonschema.ValidationError, match="'urgent' is not one of"):
        check_headers("request", [("ce_id", b"mine"), ("inf-priority", b"urgent")])


def test_answers_and_dead_letters_keep_to_the_document() -> None:
    reply = plain_reply(a_batch(a_request(reply_to=PLAIN)), 0, [])
    check_headers("reply", reply.headers)
    check_headers("reply", plain_refusal(a_terminal()).headers)
    letter = DeadLetter(Source("t", 0, 1), "one", "acme", "digits", Reason.CRASH, "", 2)
    original = a_record(b"", {"ce_id": b"one", "mine": b"kept"})
    check_headers("deadLetter", dead_letter(letter, original).headers)
    check_headers("deadLetter", dead_letter(letter, None).headers)


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        *((name, PROTOBUF_HEADERS) for name in ("order", "completion", "replies")),
        *((name, JSON_HEADERS) for name in ("claim", "heartbeat", "announcement")),
    ],
)
def test_envelopes_keep_to_the_document(message: str, headers: Headers) -> None:
    check_headers(message, headers)


def test_payloads_are_named_by_what_decodes_them() -> None:
    payloads: Mapping[str, Any] = {
        name: message["payload"]
        for name, message in document()["components"]["messages"].items()
    }
    assert {
        name: payload["schema"]["$ref"].rpartition("#")[2]
        for name, payload in payloads.items()
        if "schema" in payload
    } == {
        "request": "inference.ModelInferRequest",
        "deadLetter": "inference.ModelInferRequest",
        "reply": "inference.ModelInferResponse",
        "order": "headrace.Order",
        "completion": "headrace.Completion",
        "replies": "headrace.Replies",
    }
