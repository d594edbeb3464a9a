"""What is refused by its bytes alone, and what is read all the same."""

import gzip
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from headrace.domain import Datatype
from headrace.errors import RequestError
from headrace.payloads import PayloadStore
from services.ingress import bounds
from services.ingress.head import Head
from tests.services.ingress.models import a_parser, a_version
from tests.services.ingress.world import World

MIB = 2**20
OPENED = b'{"inputs":[{"name":"X","datatype":"FP32","shape":[1,4],"data":['


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.UINT8, Datatype.BYTES])
@pytest.mark.parametrize(
    "text",
    [
        OPENED + b"[]," * 11_000_000 + b"1]}]}",
        OPENED + b"[]," * 1_040_000 + b"1]}]}",
        OPENED + b"{}," * 1_040_000 + b"1]}]}",
        OPENED + b"1," * 15_000_000 + b"1]}]}",
        OPENED + b"[NaN]," * 200_000 + b"1]}]}",
        OPENED + b'"",' * 1_040_000 + b"[]," * 70_000 + b"1]}]}",
        b'{"inputs":[' + b'{"name":"X"},' * 1_200_000 + b"1]}",
        b'{"outputs":[' + b'{"name":"Y"},' * 100_000 + b"1]}",
    ],
    ids=lambda text: text[-30:].decode(),
)
def test_more_than_a_request_holds_is_refused_before_it_is_parsed(
    datatype: Datatype, text: bytes
) -> None:
    parser = a_parser(a_version(("X", datatype, (-1, 4))))
    tracemalloc.start()
    try:
        with pytest.raises(RequestError) as caught:
            parser.parse(Head(), text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.reason == "too_large"
    assert peak_bytes < MIB


def test_bare_constants_stand_among_as_many_elements_as_floats_have() -> None:
    parser = a_parser(a_version(("X", Datatype.UINT8, (-1, 4))))
    with pytest.raises(RequestError) as caught:
        parser.parse(Head(), OPENED + b"1.5," * 1_040_000 + b"NaN]}]}")
    assert caught.value.reason == "too_large"


def test_a_string_without_end_is_looked_through_once() -> None:
    parser = a_parser(a_version(("X", Datatype.BYTES, (-1, 4))))
    started = time.process_time()
    with pytest.raises(RequestError, match="not valid JSON"):
        parser.parse(Head(), OPENED + b'"\\' * 5_000_000 + b"[" * 70_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        (Datatype.UINT8, [255] * MIB),
        (Datatype.FP32, [-1.1754943508222875e-38] * (MIB // 4)),
        (Datatype.FP64, [-2.2250738585072014e-308] * (MIB // 8)),
        (Datatype.BOOL, [False] * MIB),
        (Datatype.BYTES, [""] * (MIB // 4)),
        (Datatype.BYTES, ['[{,\\"' * 200_000]),
        (Datatype.BYTES, ["\0" * (MIB - 4)]),
    ],
)
def test_a_payload_of_the_largest_size_is_read_from_json(
    datatype: Datatype, data: list[Any]
) -> None:
    served = a_version(("X", datatype, (-1, len(data))))
    one = {"name": "X", "datatype": datatype, "shape": [1, len(data)], "data": data}
    text = json.dumps({"inputs": [one]}).encode()
    (tensor,) = a_parser(served).parse(Head(), text).tensors
    assert len(tensor.data) <= MIB
    assert tensor.shape == (1, len(data))


def test_a_body_is_unpacked_no_further_than_its_model_can_take() -> None:
    world = World()
    packed = gzip.compress(OPENED + b"[]," * 22_000_000 + b"1]}]}", 1)
    started = time.process_time()
    answer = world.ask((b"content-encoding", b"gzip"), body=packed)
    spent_s = time.process_time() - started
    assert (answer.status, answer.reason) == (413, "too_large")
    assert (
        b"8454144 bytes when decompressed, more than a request of this model takes "
        b"(payload_bytes_max)"
    ) in answer.body
    assert spent_s < 0.5


def test_who_compresses_what_the_store_would_take_is_told_not_to(
    tmp_path: Path,
) -> None:
    world = World(store=PayloadStore(f"file://{tmp_path}"))
    packed = gzip.compress(b"{}" + bytes(MIB + 1), 1)
    sizes = (b"inference-header-content-length", b"2")
    answer = world.ask(sizes, (b"content-encoding", b"gzip"), body=packed)
    assert (answer.status, answer.reason) == (413, "too_large")
    assert b"without content-encoding it may be larger" in answer.body


def test_the_limit_of_a_body_depends_on_its_parts() -> None:
    mine = a_parser(a_version()).bounds
    text_max = MIB // 4 * 32 + bounds.TEXT_BESIDE_DATA
    assert mine.body_bytes_max(Head()) == mine.json_bytes_max == text_max
    assert mine.body_bytes_max(Head(json_bytes=0)) == MIB
    assert mine.body_bytes_max(Head(json_bytes=100)) == 100 + MIB
    assert mine.body_bytes_max(Head(json_bytes=10**9)) == text_max + MIB


def test_more_digits_than_python_reads_are_told_in_a_sentence_of_our_own() -> None:
    text = OPENED + b"NaN," + b"9" * 5000 + b",3,4]}]}"
    with pytest.raises(RequestError, match="integer of too many digits$"):
        a_parser(a_version()).parse(Head(), text)
