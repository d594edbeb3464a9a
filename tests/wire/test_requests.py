"""Requests of our own, from their sender to the batch former."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    CancelRead,
    Datatype,
    Priority,
    Reason,
    Request,
    RequestRead,
    Source,
    Tensor,
    TensorSpec,
)
from headrace.wire import (
    TIMEOUT_MAX_US,
    NewRequest,
    RequestDecoder,
    RequestEncoder,
    cancel_headers,
    compatibility,
)
from headrace.wire._generated import open_inference_pb2 as oip
from headrace.wire.headers import (
    LENGTH,
    REQUEST_HEADERS,
    TRACEPARENT,
    TRACESTATE,
)
from tests.wire.records import (
    AN_INGRESS,
    BY_HAND,
    EPOCH_US,
    INGRESS,
    PLAIN,
    S,
    a_decoder,
    a_new_request,
    a_padded_version,
    a_record,
    a_value,
    a_version,
    read,
    rejected,
)


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


@pytest.mark.parametrize("early_us", [-S, 0, 645, S])
def test_the_longest_time_limit_holds_by_a_clock_that_is_only_about_right(
    early_us: int,
) -> None:
    """The log keeps whole milliseconds, and its broker's clock is another one."""
    written_us = EPOCH_US + 9 * S
    request = a_new_request(deadline_us=written_us + TIMEOUT_MAX_US)
    headers, value = INGRESS.encode(request, written_us)
    decoder = a_decoder(a_version())
    appended_us = 9 * S - early_us

    # The second one is of a form that is known.
    for _ in range(2):
        record = a_record(value, dict(headers), at_us=appended_us)
        assert read(decoder, record).deadline_us == 9 * S + TIMEOUT_MAX_US


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
        ("inf-deadline", b"1700000000000000"),
        ("ce_time", b"2023-11-14T22:13:20.000005+00:00"),
        ("inf-tenant", b"acme"),
        ("inf-model", b"digits"),
        ("inf-version", b"3"),
        ("inf-rows", b"1"),
        ("inf-shape", b"x:UINT8:3"),
        ("reply-topic", b"headrace.replies.default"),
        ("reply-partition", b"0"),
        ("ce_source", b"headrace/ingress/0"),
        ("ce_specversion", b"1.0"),
        ("ce_type", b"inf.request.v1"),
        ("content-type", b"application/protobuf"),
        ("traceparent", b"00-1-2-01"),
        ("tracestate", b"a=b"),
    ]
    written = [name for name, _ in headers]
    assert written == [
        *(name for name in REQUEST_HEADERS if name != LENGTH),
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


def test_a_request_that_was_put_back_is_not_the_one_that_ended() -> None:
    headers, value = INGRESS.encode(a_new_request(), EPOCH_US)

    def asked(*letter: tuple[str, bytes]) -> Request:
        return read(a_decoder(a_version()), a_record(value, dict([*headers, *letter])))

    ended = asked()
    first, second = (
        asked(("inf-redriven", b"headrace.deadletters.m/0/%d" % offset))
        for offset in (1, 2)
    )
    assert (ended.is_redriven, first.is_redriven) == (False, True)
    assert ended.id == first.id == second.id
    assert len({ended.key, first.key, second.key}) == 3
    again = asked(("inf-redriven", b"headrace.deadletters.m/0/1"))
    assert again.key == first.key


def test_a_cancel_names_the_request_that_its_sender_wrote() -> None:
    request = a_new_request()
    decoder = a_decoder(a_version())
    headers, value = INGRESS.encode(request, EPOCH_US)
    asked = read(decoder, a_record(value, dict(headers)))
    cancel = cancel_headers(
        request.id, request.tenant, AN_INGRESS, source="headrace/ingress/0", log_us=7
    )

    record = a_record(None, dict(cancel))
    source = Source(record.topic, record.partition, record.offset)
    assert decoder.decode(record) == CancelRead(source, asked.key)


def test_a_cancel_under_a_key_names_the_body_of_its_request() -> None:
    request = a_new_request()
    decoder = a_decoder(a_version())
    headers, value = INGRESS.encode(request, EPOCH_US)
    headers.append(("inf-body-sha256", b"5e"))
    cancel = cancel_headers(
        *(request.id, request.tenant, AN_INGRESS),
        source="headrace/ingress/0",
        log_us=7,
        body_sha256="5e",
    )

    asked = read(decoder, a_record(value, dict(headers)))
    read_cancel = decoder.decode(a_record(None, dict(cancel)))

    assert asked.body_sha256 == "5e"
    assert isinstance(read_cancel, CancelRead)
    assert (read_cancel.key, read_cancel.body_sha256) == (asked.key, "5e")


def test_a_record_with_a_value_is_no_cancel() -> None:
    headers, value = INGRESS.encode(a_new_request(), EPOCH_US)
    named = {**dict(headers), "ce_type": b"inf.cancel.v1"}

    assert isinstance(
        a_decoder(a_version()).decode(a_record(value, named)), RequestRead
    )


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
