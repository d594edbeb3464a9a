"""Requests of our own and by hand, from their sender to the batch former."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    Datatype,
    Priority,
    Reason,
    ReplyAddress,
    Request,
    RequestRead,
    Source,
    Tensor,
    TensorSpec,
)
from headrace.wire import (
    NewRequest,
    RequestDecoder,
    RequestEncoder,
    compatibility,
    pack_bytes,
)
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.headers import REQUEST_HEADERS, TRACEPARENT, TRACESTATE
from headrace.wire.requests import (
    BULK_TIMEOUT_MAX_US,
    ID_BYTES_MAX,
    TIMEOUT_DEFAULT_US,
    TIMEOUT_MAX_US,
)
from tests.wire.records import (
    AN_INGRESS,
    EPOCH_US,
    a_decoder,
    a_padded_version,
    a_record,
    a_value,
    a_version,
    read,
    rejected,
)

INGRESS = RequestEncoder("headrace/ingress/0", AN_INGRESS)
BY_HAND = {
    "ce_id": b"mine-1",
    "inf-model": b"digits",
    "reply-topic": b"headrace.results.acme.scan",
}
PLAIN = ReplyAddress("headrace.results.acme.scan", None)
S = 1_000_000


def a_new_request(
    tensors: Sequence[Tensor] = (Tensor("x", Datatype.FP32, (2, 4), bytes(32)),),
    **changes: object,
) -> NewRequest:
    served = a_version()
    request = NewRequest(
        id="0190" + "0" * 28,
        tenant="acme",
        model="digits",
        version="3",
        priority=Priority.STANDARD,
        deadline_us=EPOCH_US + 3 * S,
        compatibility=compatibility(
            served, [each.shape for each in tensors], [each.data for each in tensors]
        ),
        tensors=tuple(tensors),
    )
    return msgspec.structs.replace(request, **changes)


def sent(request: NewRequest, encoder: RequestEncoder = INGRESS) -> Request:
    headers, value = encoder.encode(request, EPOCH_US + S)
    return read(a_decoder(a_version()), a_record(value, dict(headers)))


def test_what_an_ingress_writes_is_what_the_former_holds() -> None:
    raw = np.arange(8, dtype="<f4").tobytes()
    request = a_new_request([Tensor("x", Datatype.FP32, (2, 4), raw)], client_id="42")
    assert sent(request) == Request(
        key=f"acme/{request.id}@headrace.replies.default/0",
        id=request.id,
        tenant="acme",
        model="digits",
        version="3",
        shape="x:FP32:4",
        rows=2,
        length=0,
        priority=Priority.STANDARD,
        arrived_us=1 * S,
        deadline_us=3 * S,
        reply_to=AN_INGRESS,
        source=Source("headrace.requests.digits", 2, 77),
        tensors=(raw,),
        size_bytes=32,
        made_by_us=True,
        client_id="42",
    )


def test_the_former_holds_slices_of_the_record() -> None:
    headers, value = INGRESS.encode(a_new_request(), EPOCH_US)
    request = read(a_decoder(a_version()), a_record(value, dict(headers)))
    (tensor,) = request.tensors
    assert isinstance(tensor, memoryview)
    assert tensor.obj is value


def test_a_request_is_a_message_of_the_protocol() -> None:
    raw = np.arange(4, dtype="<f4").tobytes()
    tensor = Tensor("x", Datatype.FP32, (1, 4), memoryview(raw))
    _, value = INGRESS.encode(a_new_request([tensor], client_id="42"), EPOCH_US)
    expected = a_value(raw, client_id="42")
    expected.model_version = "3"
    assert oip.ModelInferRequest.FromString(value) == expected


def test_the_bytes_of_a_request_are_these() -> None:
    tensor = Tensor("x", Datatype.UINT8, (1, 3), b"\1\2\3")
    request = NewRequest(
        id="0190" + "0" * 28,
        tenant="acme",
        model="digits",
        version="3",
        priority=Priority.REALTIME,
        deadline_us=EPOCH_US,
        compatibility=compatibility(
            a_version(TensorSpec("x", Datatype.UINT8, (-1, 3))), [(1, 3)], [b"\1\2\3"]
        ),
        tensors=(tensor,),
        client_id="42",
        traceparent="00-1-2-01",
        tracestate="a=b",
    )
    headers, value = INGRESS.encode(request, EPOCH_US + 5)
    assert value == (
        b"\n\x06digits\x12\x013\x1a\x0242*\x0e\n\x01x\x12\x05UINT8\x1a\x02\x01\x03"
        b":\x03\x01\x02\x03"
    )
    assert headers == [
        ("ce_id", b"0190" + b"0" * 28),
        ("inf-tenant", b"acme"),
        ("inf-model", b"digits"),
        ("inf-version", b"3"),
        ("inf-priority", b"realtime"),
        ("inf-deadline", b"1700000000000000"),
        ("inf-rows", b"1"),
        ("inf-shape", b"x:UINT8:3"),
        ("inf-length", b"0"),
        ("reply-topic", b"headrace.replies.default"),
        ("reply-partition", b"0"),
        ("ce_source", b"headrace/ingress/0"),
        ("ce_time", b"2023-11-14T22:13:20.000005+00:00"),
        ("ce_specversion", b"1.0"),
        ("ce_type", b"inf.request.v1"),
        ("content-type", b"application/protobuf"),
        ("inf-schema", b"1"),
        ("traceparent", b"00-1-2-01"),
        ("tracestate", b"a=b"),
    ]
    assert [name for name, _ in headers] == [
        *REQUEST_HEADERS,
        TRACEPARENT,
        TRACESTATE,
    ]


def test_bulk_without_a_limit_has_no_deadline() -> None:
    headers, value = INGRESS.encode(
        a_new_request(deadline_us=None, priority=Priority.BULK), EPOCH_US
    )
    record = a_record(value, dict(headers), priority=Priority.BULK)
    request = read(a_decoder(a_version()), record)
    assert request.deadline_us is None
    assert request.priority is Priority.BULK


def test_a_publisher_may_want_plain_replies_or_none() -> None:
    plain = RequestEncoder("headrace/jobs/7", PLAIN)
    assert sent(a_new_request(), plain).reply_to == PLAIN
    none = RequestEncoder("headrace/jobs/7", None)
    assert sent(a_new_request(), none).reply_to is None


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
OFF = TIMEOUT_MAX_US
FAR = BULK_TIMEOUT_MAX_US


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
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


@pytest.mark.parametrize("value", [None, b"\xff\xff\xff", b"\x3a\x7fshort"])
def test_a_value_that_is_no_request_is_undecodable(value: bytes | None) -> None:
    ours = dict(INGRESS.encode(a_new_request(), EPOCH_US)[0])
    for headers in (BY_HAND, ours):
        rejection = rejected(a_decoder(a_version()), a_record(value, headers))
        assert rejection.reason is Reason.UNDECODABLE
        assert rejection.reply_to is not None


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"inf-rows": b"3"}, "input 'x' has 32 bytes, expected 48"),
        ({"inf-rows": b"33"}, "inf-rows is 33, expected 1 to 32 (max_batch)"),
        ({"inf-rows": None}, "inf-rows is 0, expected 1 to 32 (max_batch)"),
        ({"inf-rows": b"x"}, "header inf-rows is b'x', expected a number"),
        ({"inf-shape": b"x:FP32:5"}, "is none of model digits version 3"),
        ({"inf-shape": b"\xff"}, "header inf-shape is not UTF-8"),
    ],
)
def test_a_record_of_ours_whose_headers_do_not_fit_its_bytes_is_rejected(
    headers: dict[str, bytes | None], text: str
) -> None:
    written, value = INGRESS.encode(a_new_request(), EPOCH_US)
    record = a_record(value, {**dict(written), **headers})
    rejection = rejected(a_decoder(a_version()), record)
    assert rejection.reason is Reason.INVALID
    assert text in rejection.text
    assert rejection.reply_to == AN_INGRESS
    assert rejection.tenant == "acme"


def test_sizes_of_padded_rows_follow_their_length() -> None:
    served = a_padded_version()
    raw = bytes(2 * 5 * 8)
    tensor = Tensor("ids", Datatype.INT64, (2, 5), raw)
    request = a_new_request()
    request = msgspec.structs.replace(
        request,
        tensors=(tensor,),
        compatibility=compatibility(served, [(2, 5)], [raw]),
    )
    headers, value = INGRESS.encode(request, EPOCH_US)
    read(a_decoder(served), a_record(value, dict(headers)))
    wrong = a_record(value, {**dict(headers), "inf-length": b"4"})
    assert "has 80 bytes, expected 64" in rejected(a_decoder(served), wrong).text


HEADER_NAMES = st.sampled_from([*REQUEST_HEADERS, "other"])
HEADER_VALUES = (
    st.none()
    | st.binary(max_size=12)
    | st.sampled_from(
        [
            b"headrace/ingress/0",
            b"headrace.replies.default",
            b"digits",
            b"x:FP32:4",
            b"1",
            b"standard",
        ]
    )
)
DECODERS: list[RequestDecoder] = [
    a_decoder(a_version()),
    a_decoder(a_padded_version()),
    a_decoder(a_version(TensorSpec("x", Datatype.BYTES, (-1, 2)))),
]


@given(
    decoder=st.sampled_from(DECODERS),
    headers=st.dictionaries(HEADER_NAMES, HEADER_VALUES),
    value=st.none() | st.binary(max_size=64),
    priority=st.sampled_from(Priority),
)
def test_any_record_is_read_or_rejected(
    decoder: RequestDecoder,
    headers: dict[str, bytes | None],
    value: bytes | None,
    priority: Priority,
) -> None:
    decoder.decode(a_record(value, headers, priority=priority))


@given(
    decoder=st.sampled_from(DECODERS),
    ours=st.booleans(),
    at=st.integers(0, 200),
    junk=st.binary(min_size=1, max_size=6),
    cut=st.integers(0, 200),
)
def test_a_damaged_record_is_read_or_rejected(
    decoder: RequestDecoder, *, ours: bool, at: int, junk: bytes, cut: int
) -> None:
    headers, value = INGRESS.encode(a_new_request(client_id="42"), EPOCH_US)
    damaged = bytearray(value)
    damaged[at : at + len(junk)] = junk
    chosen = dict(headers) if ours else BY_HAND
    decoder.decode(a_record(bytes(damaged[:cut]), chosen))
