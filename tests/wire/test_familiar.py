"""A record is read the same whether its form was seen before or not."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype, Priority, RequestRead, Tensor
from headrace.wire import Record
from headrace.wire.familiar import form_key, learn
from headrace.wire.headers import REQUEST_HEADERS
from tests.wire.records import (
    EPOCH_US,
    INGRESS,
    a_decoder,
    a_new_request,
    a_record,
    a_version,
)


def record_of(number: int, *, client_id: str = "", limit_us: int = 50_000) -> Record:
    raw = bytes([number]) * 16
    request = a_new_request(
        [Tensor("x", Datatype.FP32, (1, 4), raw)],
        id=f"{number:032x}",
        client_id=client_id,
        deadline_us=EPOCH_US + limit_us,
    )
    headers, value = INGRESS.encode(request, EPOCH_US)
    return a_record(value, dict(headers), priority=Priority.STANDARD)


def test_a_form_is_learned_from_the_first_request() -> None:
    served = a_version()
    first = record_of(1)
    read = a_decoder(served).decode(first)
    assert isinstance(read, RequestRead)
    known = learn(first, read, served)
    assert known is not None
    assert known.size == len(first.value or b"")
    assert form_key(first) != form_key(record_of(2))  # the values differ
    one, two = form_key(first), form_key(record_of(2))
    assert one is not None
    assert two is not None
    assert one[0] == two[0]


def test_a_value_with_an_id_of_the_client_is_not_learned() -> None:
    served = a_version()
    record = record_of(1, client_id="42")
    read = a_decoder(served).decode(record)
    assert isinstance(read, RequestRead)
    assert learn(record, read, served) is None


damages = st.one_of(
    st.tuples(st.just("value"), st.integers(0, 70), st.binary(min_size=1, max_size=3)),
    st.tuples(
        st.sampled_from(REQUEST_HEADERS),
        st.integers(0, 8),
        st.binary(min_size=0, max_size=3),
    ),
)


@given(
    numbers=st.lists(st.integers(0, 250), min_size=1, max_size=6),
    limits_us=st.lists(
        st.sampled_from([-1, 0, 1, 50_000, 10**9, 10**12]), min_size=6, max_size=6
    ),
    damage=damages,
)
def test_what_was_seen_before_changes_nothing(
    numbers: list[int], limits_us: list[int], damage: tuple[str, int, bytes]
) -> None:
    seasoned = a_decoder(a_version())
    seasoned.decode(record_of(7))
    place, at, junk = damage
    for number, limit_us in zip(numbers, limits_us, strict=False):
        whole = record_of(number, limit_us=limit_us)
        for record in (whole, damaged(whole, place, at, junk)):
            assert seasoned.decode(record) == a_decoder(a_version()).decode(record)


def damaged(record: Record, place: str, at: int, junk: bytes) -> Record:
    if place == "value":
        value = record.value or b""
        value = value[:at] + junk + value[at + len(junk) :]
        return msgspec.structs.replace(record, value=value)
    headers = [
        (name, (value or b"")[:at] + junk if name == place else value)
        for name, value in record.headers
    ]
    return msgspec.structs.replace(record, headers=headers)
