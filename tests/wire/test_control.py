"""The JSON records: claims, heartbeats, announcements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from headrace.domain import (
    Datatype,
    Load,
    ModelState,
    Padding,
    Signature,
    TensorSpec,
)
from headrace.errors import UndecodableRecord
from headrace.wire import (
    JSON_HEADERS,
    Announcement,
    Claim,
    Heartbeat,
    LaneLoad,
    Record,
    Role,
    ServiceState,
    announcement_key,
    decode_json,
    encode_json,
    parse_announcement_key,
)

SCHEMAS = Path(__file__).parents[2] / "schemas"

CLAIM = Claim("former-0", "ab" * 16, "host", 7, 1_700_000_000_000_000)
HEARTBEATS = [
    Heartbeat(Role.INGRESS, 0, "ab" * 16, ServiceState.STARTING),
    Heartbeat(
        Role.GPU_WORKER,
        3,
        "ab" * 16,
        ServiceState.READY,
        host="host",
        pid=7,
        admin="http://127.0.0.1:9",
        incarnation=12,
        lane=0,
        models=("digits/1",),
    ),
    Heartbeat(
        Role.BATCH_FORMER,
        0,
        "ab" * 16,
        ServiceState.DRAINING,
        lanes=(
            LaneLoad(
                lane=0,
                epoch=4,
                active=True,
                load=Load(slots=2, free_us=[0, 1500]),
                request_us=1,
                control_us=2,
                response_us=3,
            ),
        ),
    ),
]
ANNOUNCEMENTS = [
    Announcement("digits", "1", 0, ModelState.REFUSED, reason="opset 99"),
    Announcement(
        "embed",
        "12",
        3,
        ModelState.READY,
        incarnation=12,
        warnings=("rows differ in a batch",),
        signature=Signature(
            (TensorSpec("ids", Datatype.INT64, (-1, -1)),),
            (TensorSpec("vector", Datatype.FP32, (-1, 384)),),
        ),
        sha256="ab" * 32,
        max_batch=32,
        batch_axes={"ids": 0, "vector": 0},
        padding=Padding("sequence", {"ids": 0.0}, {"ids": 1}, {}, (16, 32)),
        latency_objective_ms=250.0,
        run_us={1: 5000, 32: 60_000},
    ),
]
VALUES: list[Claim | Heartbeat | Announcement] = [CLAIM, *HEARTBEATS, *ANNOUNCEMENTS]


def a_record(value: bytes | None, schema: bytes = b"1") -> Record:
    headers = {**dict(JSON_HEADERS), "inf-schema": schema}
    return Record("t", 0, 0, 0, None, value, list(headers.items()))


@pytest.mark.parametrize("value", VALUES)
def test_a_record_comes_as_it_went_and_fits_its_schema(
    value: Claim | Heartbeat | Announcement,
) -> None:
    encoded = encode_json(value)
    kind: Any = type(value)
    assert decode_json(kind, a_record(encoded)) == value
    schema = json.loads((SCHEMAS / f"{kind.__name__.lower()}.schema.json").read_text())
    jsonschema.validate(json.loads(encoded), schema)


def test_what_a_newer_writer_adds_is_skipped() -> None:
    encoded = json.dumps({**json.loads(encode_json(CLAIM)), "colour": "blue"})
    assert decode_json(Claim, a_record(encoded.encode())) == CLAIM


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{}", b"[]", b"\xff", b'{"instance": 5}', encode_json(HEARTBEATS[0])],
)
def test_anything_else_is_undecodable(value: bytes | None) -> None:
    with pytest.raises(UndecodableRecord):
        decode_json(Claim, a_record(value))


def test_an_unknown_schema_version_is_undecodable() -> None:
    with pytest.raises(UndecodableRecord, match="inf-schema is b'2', expected 1"):
        decode_json(Claim, a_record(encode_json(CLAIM), schema=b"2"))


def test_a_state_that_is_not_known_is_undecodable() -> None:
    changed = msgspec.to_builtins(ANNOUNCEMENTS[0]) | {"state": "asleep"}
    with pytest.raises(UndecodableRecord, match="asleep"):
        decode_json(Announcement, a_record(msgspec.json.encode(changed)))


def test_a_key_names_model_version_and_slot() -> None:
    key = announcement_key("digits", "12", 3)
    assert key == b"digits/12/3"
    assert parse_announcement_key(key) == ("digits", "12", 3)


@pytest.mark.parametrize("key", [None, b"", b"digits/1", b"digits/1/a", b"\xff/1/2"])
def test_a_key_of_another_form_is_undecodable(key: bytes | None) -> None:
    with pytest.raises(UndecodableRecord, match="is no key of control.models"):
        parse_announcement_key(key)


def changed(value: Claim | Heartbeat | Announcement, path: str, to: object) -> Record:
    """``value`` with what lies at ``path`` replaced."""
    content = json.loads(encode_json(value))
    *way, last = path.split(".")
    place = content
    for step in way:
        place = place[int(step) if isinstance(place, list) else step]
    place[int(last) if isinstance(place, list) else last] = to
    return a_record(json.dumps(content).encode())


SPEC = {"name": "ids", "datatype": "INT64", "shape": [-1]}


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("latency_objective_ms", 1e308),
        ("latency_objective_ms", float("inf")),
        ("latency_objective_ms", float("nan")),
        ("latency_objective_ms", 0),
        ("latency_objective_ms", -5),
        ("version", "9" * 4301),
        ("version", "0"),
        ("version", "1\n"),
        ("version", "\u0663"),
        ("version", ""),
        ("model", "a/b"),
        ("model", "stats"),
        ("model", "m" * 101),
        ("model", "m\n"),
        ("slot", -1),
        ("slot", 10**30),
        ("incarnation", 10**30),
        ("incarnation", -1),
        ("max_batch", 0),
        ("max_batch", 10**12),
        ("run_us", {"1": -5}),
        ("run_us", {"1": 10**30}),
        ("run_us", {"0": 5}),
        ("run_us", {str(10**30): 5}),
        ("batch_axes", {"ids": 2}),
        ("batch_axes", {"vector": 10**9}),
        ("batch_axes", {"ids": -2}),
        ("padding.edges", []),
        ("padding.edges", [0]),
        ("padding.edges", [16, 16]),
        ("padding.edges", [32, 16]),
        ("padding.input_axes", {"ids": 2}),
        ("padding.output_axes", {"vector": 2}),
        ("signature.inputs", [SPEC, SPEC]),
        ("signature.inputs", [SPEC | {"datatype": "WAT"}]),
        ("signature.inputs", [SPEC | {"shape": [-9, 1]}]),
        ("signature.inputs", [SPEC | {"shape": [10**30, 1]}]),
    ],
)
def test_an_announcement_that_no_worker_makes_is_undecodable(
    path: str, to: object
) -> None:
    with pytest.raises(UndecodableRecord):
        decode_json(Announcement, changed(ANNOUNCEMENTS[1], path, to))


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("slot", -1),
        ("slot", 10**30),
        ("lanes.0.lane", -1),
        ("lanes.0.epoch", 2**63),
        ("lanes.0.epoch", -2),
        ("lanes.0.request_us", -1),
        ("lanes.0.control_us", 10**30),
        ("lanes.0.load.slots", -5),
        ("lanes.0.load.slots", 10**30),
        ("lanes.0.load.free_us", [-1]),
        ("lanes.0.load.free_us", [2, 1]),
        ("lanes.0.load.prices", [["m", "1", -5, 0, 0]]),
    ],
)
def test_a_heartbeat_that_no_former_sends_is_undecodable(path: str, to: object) -> None:
    with pytest.raises(UndecodableRecord):
        decode_json(Heartbeat, changed(HEARTBEATS[2], path, to))


def test_a_record_nested_too_deep_is_undecodable() -> None:
    with pytest.raises(UndecodableRecord, match="recursion"):
        decode_json(Claim, a_record(b'{"new": ' + b"[" * 100_000))
