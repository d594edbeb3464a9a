"""Requests that anybody put on the topic by hand."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from headrace.domain import (
    Datatype,
    Priority,
    Reason,
    ReplyAddress,
    Request,
    RequestRead,
    Source,
    TensorSpec,
)
from headrace.wire import (
    pack_bytes,
)
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.deadlines import (
    BULK_TIMEOUT_MAX_US,
    CLOCK_SLACK_US,
    TIMEOUT_DEFAULT_US,
    TIMEOUT_MAX_US,
)
from headrace.wire.requests import ID_BYTES_MAX
from tests.wire.records import (
    BY_HAND,
    EPOCH_US,
    PLAIN,
    S,
    a_decoder,
    a_padded_version,
    a_record,
    a_value,
    a_version,
    read,
    rejected,
)


def test_a_record_by_hand_gets_defaults_for_the_rest() -> None:
    raw = np.arange(12, dtype="<f4").tobytes()
    value = a_value(raw, shape=(3, 4), client_id="my id").SerializeToString()
    record = a_record(value, BY_HAND, priority=Priority.INTERACTIVE, at_us=9 * S)
    assert read(a_decoder(a_version()), record) == Request(
        key="headrace.requests.digits/1/77",
        id="mine-1",
        tenant="default",
        model="digits",
        version="3",
        shape="x:FP32:4",
        rows=3,
        length=0,
        priority=Priority.INTERACTIVE,
        arrived_us=9 * S,
        deadline_us=9 * S + TIMEOUT_DEFAULT_US,
        reply_to=PLAIN,
        source=Source("headrace.requests.digits", 1, 77),
        tensors=(raw,),
        size_bytes=48,
        made_by_us=False,
        client_id="my id",
    )


def by_hand(
    value: oip.ModelInferRequest,
    *specs: TensorSpec,
    headers: dict[str, bytes | None] | None = None,
) -> Request:
    record = a_record(value.SerializeToString(), {**BY_HAND, **(headers or {})})
    return read(a_decoder(a_version(*specs)), record)


def test_a_record_by_hand_without_reply_topic_wants_no_reply() -> None:
    assert by_hand(a_value(), headers={"reply-topic": None}).reply_to is None


def test_a_padded_length_is_read_off_the_shape() -> None:
    value = a_value(bytes(80), name="ids", datatype="INT64", shape=(2, 5))
    record = a_record(value.SerializeToString(), BY_HAND)
    request = read(a_decoder(a_padded_version()), record)
    assert (request.shape, request.rows, request.length) == ("ids:INT64:~8", 2, 5)


CONTENTS = [
    (Datatype.BOOL, "bool_contents", [True, False], b"\1\0"),
    (Datatype.INT8, "int_contents", [-128, 127], b"\x80\x7f"),
    (Datatype.INT16, "int_contents", [-2, 1], struct.pack("<2h", -2, 1)),
    (Datatype.INT32, "int_contents", [-(2**31), 1], struct.pack("<2i", -(2**31), 1)),
    (Datatype.INT64, "int64_contents", [-(2**63), 1], struct.pack("<2q", -(2**63), 1)),
    (Datatype.UINT8, "uint_contents", [0, 255], b"\x00\xff"),
    (Datatype.UINT16, "uint_contents", [65535, 1], struct.pack("<2H", 65535, 1)),
    (
        Datatype.UINT32,
        "uint_contents",
        [2**32 - 1, 1],
        struct.pack("<2I", 2**32 - 1, 1),
    ),
    (
        Datatype.UINT64,
        "uint64_contents",
        [2**64 - 1, 1],
        struct.pack("<2Q", 2**64 - 1, 1),
    ),
    (Datatype.FP32, "fp32_contents", [0.5, -1.5], struct.pack("<2f", 0.5, -1.5)),
    (Datatype.FP64, "fp64_contents", [0.1, -1.5], struct.pack("<2d", 0.1, -1.5)),
    (Datatype.BYTES, "bytes_contents", [b"a", b"\xff"], pack_bytes([b"a", b"\xff"])),
]


@pytest.mark.parametrize(("datatype", "field", "elements", "raw"), CONTENTS)
def test_typed_contents_of_every_datatype_become_raw(
    datatype: Datatype, field: str, elements: list[object], raw: bytes
) -> None:
    value = a_value(datatype=datatype, shape=(1, 2))
    del value.raw_input_contents[:]
    getattr(value.inputs[0].contents, field).extend(elements)
    request = by_hand(value, TensorSpec("x", datatype, (-1, 2)))
    assert request.tensors == (raw,)


@pytest.mark.parametrize("datatype", Datatype)
def test_raw_contents_of_every_datatype_are_taken_as_they_are(
    datatype: Datatype,
) -> None:
    size = datatype.item_bytes
    raw = pack_bytes([b"a", b"bc"]) if size is None else bytes(range(2 * size))
    value = a_value(raw, datatype=datatype, shape=(1, 2))
    assert by_hand(value, TensorSpec("x", datatype, (-1, 2))).tensors == (raw,)


def test_inputs_by_hand_may_stand_in_any_order() -> None:
    specs = (
        TensorSpec("a", Datatype.UINT8, (-1, 2)),
        TensorSpec("b", Datatype.INT8, (-1,)),
    )
    value = a_value(b"\7", name="b", datatype="INT8", shape=(1,))
    value.inputs.add(name="a", datatype="UINT8", shape=(1, 2))
    value.raw_input_contents.append(b"\1\2")
    assert by_hand(value, *specs).tensors == (b"\1\2", b"\7")


@pytest.mark.parametrize(
    ("header", "in_value", "served"),
    [(None, "", True), (None, "3", True), (None, "9", False), (b"3", "9", True)],
)
def test_a_version_by_hand_is_the_headers_else_the_values(
    header: bytes | None, in_value: str, *, served: bool
) -> None:
    value = a_value()
    value.model_version = in_value
    record = a_record(value.SerializeToString(), {**BY_HAND, "inf-version": header})
    decoded = a_decoder(a_version()).decode(record)
    assert isinstance(decoded, RequestRead) is served


def test_headers_of_others_do_not_overrule_the_value() -> None:
    request = by_hand(
        a_value(bytes(32), shape=(2, 4)),
        headers={"inf-rows": b"1", "inf-shape": b"x:FP32:5", "inf-length": b"9"},
    )
    assert (request.rows, request.shape, request.length) == (2, "x:FP32:4", 0)


@pytest.mark.parametrize(
    ("partition", "named", "expected"),
    [
        (Priority.STANDARD, b"realtime", Priority.STANDARD),
        (Priority.STANDARD, b"standard", Priority.STANDARD),
        (Priority.STANDARD, b"bulk", Priority.BULK),
        (Priority.BULK, b"realtime", Priority.BULK),
        (Priority.REALTIME, None, Priority.REALTIME),
    ],
)
def test_a_header_names_no_more_urgent_priority_than_its_partition(
    partition: Priority, named: bytes | None, expected: Priority
) -> None:
    record = a_record(
        a_value().SerializeToString(),
        {**BY_HAND, "inf-priority": named},
        priority=partition,
        lane=3,
    )
    assert read(a_decoder(a_version()), record).priority is expected


NOW = 100 * S
OFF = TIMEOUT_MAX_US + CLOCK_SLACK_US
FAR = BULK_TIMEOUT_MAX_US + CLOCK_SLACK_US


@pytest.mark.parametrize(
    ("priority", "deadline_us", "expected"),
    [
        (Priority.STANDARD, None, (NOW + 2 * S, False)),
        (Priority.STANDARD, NOW + 1, (NOW + 1, False)),
        (Priority.STANDARD, NOW + OFF, (NOW + OFF, False)),
        (Priority.STANDARD, NOW + OFF + 1, (NOW + 2 * S, False)),
        (Priority.STANDARD, NOW, (NOW, True)),
        (Priority.STANDARD, NOW - OFF, (NOW - OFF, True)),
        (Priority.STANDARD, NOW - OFF - 1, (NOW + 2 * S, False)),
        (Priority.BULK, None, (None, False)),
        (Priority.BULK, NOW + OFF + 1, (NOW + OFF + 1, False)),
        (Priority.BULK, NOW + FAR + 1, (None, False)),
        (Priority.BULK, NOW - 1, (NOW - 1, True)),
    ],
)
def test_a_deadline_holds_within_the_longest_time_limit_of_the_records_time(
    priority: Priority, deadline_us: int | None, expected: tuple[int | None, bool]
) -> None:
    header = None if deadline_us is None else b"%d" % (EPOCH_US + deadline_us)
    record = a_record(
        a_value().SerializeToString(),
        {**BY_HAND, "inf-deadline": header},
        priority=priority,
        at_us=NOW,
    )
    decoded = a_decoder(a_version(latency_objective_us=2 * S)).decode(record)
    assert isinstance(decoded, RequestRead)
    assert (decoded.request.deadline_us, decoded.overdue) == expected


def changed(headers: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {**BY_HAND, **headers}


@pytest.mark.parametrize(
    ("headers", "reason", "text"),
    [
        ({"inf-schema": b"2"}, Reason.UNDECODABLE, "inf-schema is b'2', expected 1"),
        ({"inf-schema": b"one"}, Reason.UNDECODABLE, "inf-schema is b'one'"),
        ({"inf-model": b"cats"}, Reason.INVALID, "this is the topic of 'digits'"),
        ({"inf-version": b"9"}, Reason.MODEL_UNKNOWN, "has no version '9'"),
        ({"ce_id": None}, Reason.INVALID, "ce_id has 0 characters, expected 1 to 256"),
        (
            {"ce_id": b"i" * (ID_BYTES_MAX + 1)},
            Reason.INVALID,
            "ce_id has 257 characters",
        ),
        ({"ce_id": b"\xff"}, Reason.INVALID, "header ce_id is not UTF-8"),
        ({"inf-tenant": b"a.b"}, Reason.INVALID, "tenant name 'a.b' is not allowed"),
        (
            {"inf-tenant": b"a.b", "ce_source": b"headrace/x"},
            Reason.INVALID,
            "tenant name 'a.b' is not allowed",
        ),
        (
            {"inf-unreadable": b""},
            Reason.UNDECODABLE,
            "the name of a header is not UTF-8",
        ),
        ({"inf-priority": b"1"}, Reason.INVALID, "inf-priority is b'1', expected one"),
        ({"inf-deadline": b"soon"}, Reason.INVALID, "inf-deadline is b'soon'"),
        ({"inf-deadline": b"-5"}, Reason.INVALID, "expected a number"),
        ({"inf-deadline": b"9" * 19}, Reason.INVALID, "expected a number"),
    ],
)
def test_a_header_that_cannot_be_right_is_told_to_the_sender(
    headers: dict[str, bytes | None], reason: Reason, text: str
) -> None:
    record = a_record(a_value(client_id="42").SerializeToString(), changed(headers))
    rejection = rejected(a_decoder(a_version()), record)
    assert rejection.reason is reason
    assert text in rejection.text
    assert rejection.reply_to == PLAIN
    assert rejection.model == "digits"
    assert rejection.client_id == "42"
    assert rejection.source == Source("headrace.requests.digits", 2, 77)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"reply-topic": b"orders"}, "reply-topic is 'orders', expected headrace.rep"),
        ({"reply-topic": b"headrace.replies.east"}, "does not exist"),
        ({"reply-partition": b"1"}, "takes no reply-partition"),
        (
            {"reply-topic": b"headrace.replies.default", "reply-partition": b"16"},
            "reply-partition is 16, but 'headrace.replies.default' has 16 partitions",
        ),
        (
            {"reply-topic": None, "reply-partition": b"1"},
            "reply-partition without reply-topic",
        ),
    ],
)
def test_a_bad_reply_address_is_nobodys(
    headers: dict[str, bytes | None], text: str
) -> None:
    record = a_record(a_value().SerializeToString(), changed(headers))
    for _ in range(2):
        rejection = rejected(a_decoder(a_version()), record)
        assert rejection.reason is Reason.REPLY_ADDRESS
        assert text in rejection.text
        assert rejection.reply_to is None
        assert rejection.id == "mine-1"


def test_an_ingress_partition_may_be_a_reply_address_by_hand() -> None:
    headers = {"reply-topic": b"headrace.replies.default", "reply-partition": b"15"}
    request = by_hand(a_value(), headers=dict(headers))
    assert request.reply_to == ReplyAddress("headrace.replies.default", 15)
    assert not request.made_by_us


def without_raw(**fields: object) -> oip.ModelInferRequest:
    value = a_value()
    del value.raw_input_contents[:]
    for field, elements in fields.items():
        getattr(value.inputs[0].contents, field).extend(elements)
    return value


def twice() -> oip.ModelInferRequest:
    value = a_value()
    value.inputs.append(value.inputs[0])
    value.raw_input_contents.append(bytes(16))
    return value


def both() -> oip.ModelInferRequest:
    value = without_raw(fp32_contents=[0.0] * 4)
    value.raw_input_contents.append(bytes(16))
    return value


def of_model(model: str) -> oip.ModelInferRequest:
    value = a_value()
    value.model_name = model
    return value


def surplus() -> oip.ModelInferRequest:
    value = a_value()
    value.raw_input_contents.append(b"")
    return value


def asking(output: str, **parameters: int) -> oip.ModelInferRequest:
    value = a_value()
    asked = value.outputs.add(name=output)
    for name, number in parameters.items():
        asked.parameters[name].int64_param = number
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (asking("z"), "unknown output 'z', model digits version 3 gives 'y'"),
        (asking("y", classification=2), "classification is not supported"),
        (a_value(name="y"), "unknown input 'y', model digits version 3 takes 'x'"),
        (oip.ModelInferRequest(), "missing input 'x'"),
        (twice(), "input 'x' is given twice"),
        (both(), "input 'x' has contents beside raw_input_contents"),
        (surplus(), "raw_input_contents has 2 entries for 1 inputs, expected one each"),
        (of_model("cats"), "the value names model 'cats'"),
        (a_value(datatype="FP64"), "datatype 'FP64', expected FP32"),
        (a_value(bytes(12)), "tensor 'x': got 12 bytes, expected 16 (FP32 [1,4])"),
        (a_value(bytes(20), shape=(1, 5)), "shape [1,5], expected [-1,4]"),
        (a_value(b"", shape=(0, 4)), "dimensions of at least 1"),
        (a_value(bytes(16), shape=(-1, 4)), "dimensions of at least 1"),
        (a_value(bytes(33 * 16), shape=(33, 4)), "takes at most 32 (max_batch)"),
        (a_value(b"", shape=(2**62, 4)), "has more than 2147483647 elements"),
        (without_raw(), "got 0 bytes, expected 16"),
        (without_raw(fp32_contents=[1.0]), "got 4 bytes, expected 16"),
        (without_raw(int_contents=[1, 2, 3, 4]), "got 0 bytes, expected 16"),
    ],
)
def test_a_value_by_hand_is_held_against_the_signature(
    value: oip.ModelInferRequest, text: str
) -> None:
    record = a_record(value.SerializeToString(), BY_HAND)
    rejection = rejected(a_decoder(a_version()), record)
    assert rejection.reason is Reason.INVALID
    assert text in rejection.text
    assert rejection.reply_to == PLAIN


def test_an_integer_beyond_its_datatype_is_refused() -> None:
    value = without_raw(int_contents=[1, 2, 3, 128])
    value.inputs[0].datatype = "INT8"
    decoder = a_decoder(a_version(TensorSpec("x", Datatype.INT8, (-1, 4))))
    rejection = rejected(decoder, a_record(value.SerializeToString(), BY_HAND))
    assert rejection.text == "tensor 'x': element 3 (128) does not fit INT8"


def test_half_precision_travels_raw_alone() -> None:
    value = without_raw(fp32_contents=[1.0] * 4)
    value.inputs[0].datatype = "FP16"
    decoder = a_decoder(a_version(TensorSpec("x", Datatype.FP16, (-1, 4))))
    rejection = rejected(decoder, a_record(value.SerializeToString(), BY_HAND))
    assert "raw_input_contents alone" in rejection.text
