"""What a body may say, and what is said of one that may not."""

import gzip
import json
import struct
import zlib
from math import inf, isnan
from typing import Any

import pytest

from headrace.domain import Datatype, Priority, ServedVersion
from headrace.errors import RequestError
from services.ingress.bounds import decompressed
from services.ingress.head import Head
from services.ingress.parsing import (
    Parsed,
    WantedOutput,
)
from tests.services.ingress.models import a_parser, a_version

ONE_ROW = struct.pack("<4f", 1, 2, 3, 4)


def parse(head: Head, text: bytes, served: ServedVersion) -> Parsed:
    return a_parser(served).parse(head, text)


def body(*inputs: dict[str, Any], **others: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **others}).encode()


def x(data: Any = None, **changes: Any) -> dict[str, Any]:
    given = {"name": "X", "shape": [1, 4], "datatype": "FP32"}
    if data is not None:
        given["data"] = data
    return given | changes


def binary_x(size: Any, **changes: Any) -> dict[str, Any]:
    return x(parameters={"binary_data_size": size}, **changes)


def parse_json(text: bytes, served: ServedVersion | None = None) -> Parsed:
    return parse(Head(), text, served or a_version())


def parse_binary(
    text: bytes, binary: bytes, served: ServedVersion | None = None
) -> Parsed:
    return parse(Head(json_bytes=len(text)), text + binary, served or a_version())


def test_json_data_becomes_raw_contents_in_the_order_of_the_signature() -> None:
    served = a_version(("A", Datatype.INT32, (-1, 2)), ("B", Datatype.BYTES, (-1, 1)))
    parsed = parse_json(
        body(
            {"name": "B", "shape": [1, 1], "datatype": "BYTES", "data": ["né"]},
            {"name": "A", "shape": [1, 2], "datatype": "INT32", "data": [[7, -1]]},
            id="42",
        ),
        served,
    )
    assert [(one.name, bytes(one.data)) for one in parsed.tensors] == [
        ("A", struct.pack("<2i", 7, -1)),
        ("B", b"\3\0\0\0n\xc3\xa9"),
    ]
    assert (parsed.client_id, parsed.key.rows) == ("42", 1)


def test_binary_tensors_follow_each_other_in_the_order_of_the_inputs() -> None:
    served = a_version(("A", Datatype.UINT8, (-1, 2)), ("B", Datatype.UINT8, (-1, 3)))
    described = [
        {
            "name": name,
            "shape": [1, size],
            "datatype": "UINT8",
            "parameters": {"binary_data_size": size},
        }
        for name, size in (("B", 3), ("A", 2))
    ]
    parsed = parse_binary(body(*described), b"bbbaa", served)
    assert [bytes(one.data) for one in parsed.tensors] == [b"aa", b"bbb"]


@pytest.mark.parametrize(
    ("size", "binary", "told"),
    [
        (15, ONE_ROW[:15], "'X'.*15 bytes, expected 16"),
        (17, ONE_ROW + b"!", "'X'.*17 bytes, expected 16"),
        (16, ONE_ROW[:12], "'X'.*16, but 12 bytes"),
        (16, ONE_ROW + b"?" * 20, "add up to 16 bytes, but 36"),
        (0, ONE_ROW, "'X'.*0 bytes, expected 16"),
        (-1, ONE_ROW, "'X'.*-1"),
        (2**31, ONE_ROW, "'X'.*2147483648, but 16"),
        (2**63, ONE_ROW, "'X'.*9223372036854775808, but 16"),
        ("16", ONE_ROW, "input 'X': .*_size must be an integer"),
        (16.0, ONE_ROW, "input 'X': .*_size must be an integer"),
        (True, ONE_ROW, "input 'X': .*_size must be an integer"),
    ],
)
def test_a_size_that_does_not_fit_is_told_with_the_tensor(
    size: Any, binary: bytes, told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        parse_binary(body(binary_x(size)), binary)


def test_sizes_that_swap_but_add_up_are_each_held_against_their_shape() -> None:
    served = a_version(("A", Datatype.FP32, (-1, 1)), ("B", Datatype.FP32, (-1, 2)))
    inputs = [
        {
            "name": name,
            "shape": [1, width],
            "datatype": "FP32",
            "parameters": {"binary_data_size": size},
        }
        for name, width, size in (("A", 1, 8), ("B", 2, 4))
    ]
    with pytest.raises(RequestError, match="'A': got 8 bytes, expected 4"):
        parse_binary(body(*inputs), b"\0" * 12, served)


def test_data_beside_a_binary_size_is_refused() -> None:
    with pytest.raises(RequestError, match="'X'.*got both"):
        parse_binary(body(binary_x(16, data=[1, 2, 3, 4])), ONE_ROW)
    with pytest.raises(RequestError, match="'X'.*got neither"):
        parse_json(body(x()))


@pytest.mark.parametrize("changed", [-1, 1])
def test_a_json_length_that_is_off_by_one_is_refused(changed: int) -> None:
    text = body(binary_x(16))
    with pytest.raises(RequestError, match="not valid JSON"):
        parse(Head(json_bytes=len(text) + changed), text + ONE_ROW, a_version())


def test_a_missing_or_too_long_json_length_is_told() -> None:
    text = body(binary_x(16))
    with pytest.raises(RequestError, match="Inference-Header-Content-Length missing"):
        parse_json(text + ONE_ROW)
    with pytest.raises(RequestError, match=f"is {len(text) + 17}, but the body has"):
        parse(Head(json_bytes=len(text) + 17), text + ONE_ROW, a_version())


@pytest.mark.parametrize(
    "shape",
    [
        [0, 4],
        [1, 0],
        [],
        [-1, 4],
        [2**31, 2**31],
        [2**32 + 1, 1],
        ["1", 4],
        [1.0, 4],
        [True, 4],
        [1] * 1000,
        "1,4",
        None,
        [[1, 4]],
    ],
)
def test_an_absurd_shape_is_refused_with_the_tensor(shape: Any) -> None:
    with pytest.raises(RequestError, match="'X'"):
        parse_binary(body(binary_x(4, shape=shape)), b"\0\0\0\0")


@pytest.mark.parametrize(
    "element", ["1e400", "-1e400", "null", '"NaN"', "true", "1e39", "[1]", "{}"]
)
@pytest.mark.parametrize("beside", ["2", "NaN"])
def test_what_is_no_number_is_refused_also_beside_a_bare_nan(
    element: str, beside: str
) -> None:
    text = (
        '{"inputs":[{"name":"X","shape":[1,4],"datatype":"FP32",'
        f'"data":[{beside},{element},3,4]}}]}}'
    )
    with pytest.raises(RequestError):
        parse_json(text.encode())


def test_the_bare_tokens_of_triton_are_numbers() -> None:
    text = (
        b'{"inputs":[{"name":"X","shape":[1,4],"datatype":"FP32",'
        b'"data":[NaN,Infinity,-Infinity,1]}]}'
    )
    (tensor,) = parse_json(text).tensors
    nan, *others = struct.unpack("<4f", tensor.data)
    assert (isnan(nan), others) == (True, [inf, -inf, 1.0])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"inputs":[{"data":' + b"[" * 60_000, "not valid JSON"),
        (b"[]", "the request must be an object, got a list"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"inputs":[NaN', "not valid JSON"),
        (b'{"inputs":[{"name":"\\ud800","data":[NaN]}]}', "shape is missing"),
        (b"{}", "inputs"),
        (body(x([1, 2, 3, 4]), id=1), "^id must be a string, got an integer$"),
        (body(x([1, 2, 3, 4]), id="x" * 1025), "id is limited to 1024"),
        (body(x([1, 2, 3, 4]), x([1, 2, 3, 4])), "'X' is given twice"),
        (body(), "lacks the model's input 'X'"),
        (body(x([1, 2, 3, 4], name="Z")), "no input 'Z', its inputs are 'X'"),
        (body(x([1, 2, 3, 4], datatype="FP64")), "'X'.*must be FP32, got 'FP64'"),
        (body(x([1, 2, 3])), "'X'.*3 elements, expected 4"),
        (body(x([[1, 2], [3, 4]])), "'X'.*nested"),
        (body(x([1] * 36, shape=[9, 4])), "9 rows.*at most 8"),
        (body(x([1] * 5, shape=[1, 5])), "'X'"),
        (
            body(x([1, 2, 3, 4]), outputs=[{"name": "Q"}]),
            "no output 'Q', its outputs are 'Y'",
        ),
        (
            body(
                x([1, 2, 3, 4]),
                outputs=[{"name": "Y", "parameters": {"classification": 3}}],
            ),
            "'Y': classification",
        ),
        (
            body(x(parameters={"shared_memory_region": "r"})),
            "'X': shared memory",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_told_what_was_expected(
    text: bytes, told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        parse_json(text)


def test_outputs_follow_the_request_and_its_binary_flags() -> None:
    served = a_version(("A", Datatype.FP32, (-1, 1)), ("B", Datatype.FP32, (-1, 1)))
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": "FP32", "data": [1]}
        for name in "AB"
    ]
    everything = parse_json(body(*inputs), served)
    assert everything.wanted == (
        WantedOutput("Y", binary=False),
        WantedOutput("Y1", binary=False),
    )
    mixed = parse_json(
        body(
            *inputs,
            outputs=[
                {"name": "Y1", "parameters": {"binary_data": False}},
                {"name": "Y"},
            ],
            parameters={"binary_data_output": True, "sequence_id": 3, "mine": "x"},
        ),
        served,
    )
    assert mixed.wanted == (
        WantedOutput("Y1", binary=False),
        WantedOutput("Y", binary=True),
    )


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_half_precision_has_no_json_form_either_way(datatype: Datatype) -> None:
    served = a_version(("X", datatype, (-1, 2)))
    as_json = x([1, 2], shape=[1, 2], datatype=datatype)
    with pytest.raises(RequestError, match=f"send {datatype} as binary"):
        parse_json(body(as_json), served)
    as_binary = binary_x(4, shape=[1, 2], datatype=datatype)
    with pytest.raises(RequestError, match=f"'Y' is {datatype}, which has no JSON"):
        parse_binary(body(as_binary), b"\0" * 4, served)
    both = body(as_binary, parameters={"binary_data_output": True})
    assert parse_binary(both, b"\0" * 4, served).wanted == (
        WantedOutput("Y", binary=True),
    )


@pytest.mark.parametrize(
    ("given", "priority"),
    [
        (0, None),
        (1, Priority.REALTIME),
        (4, Priority.BULK),
        ("interactive", Priority.INTERACTIVE),
    ],
)
def test_priorities_are_names_or_tritons_numbers(
    given: Any, priority: Priority | None
) -> None:
    text = body(x([1, 2, 3, 4]), parameters={"priority": given, "timeout": 5000})
    parsed = parse_json(text)
    assert (parsed.priority, parsed.timeout_us) == (priority, 5000)


@pytest.mark.parametrize(
    "parameters",
    [
        {"priority": 5},
        {"priority": -1},
        {"priority": "urgent"},
        {"priority": 1.5},
        {"timeout": -1},
        {"timeout": 600_000_001},
        {"timeout": "1s"},
    ],
)
def test_a_priority_or_time_limit_out_of_range_is_refused(
    parameters: dict[str, Any],
) -> None:
    with pytest.raises(RequestError):
        parse_json(body(x([1, 2, 3, 4]), parameters=parameters))


@pytest.mark.parametrize(
    ("served", "raw", "shape"),
    [
        (a_version(), ONE_ROW, (1, 4)),
        (a_version(("X", Datatype.INT64, (-1, -1))), b"\1" * 24, (1, 3)),
        (a_version(("X", Datatype.UINT8, (5,))), b"12345", (5,)),
    ],
)
def test_a_raw_request_is_one_row_of_the_only_input(
    served: ServedVersion, raw: bytes, shape: tuple[int, ...]
) -> None:
    parsed = parse(Head(json_bytes=0), raw, served)
    (tensor,) = parsed.tensors
    assert (tensor.shape, bytes(tensor.data)) == (shape, raw)
    assert parsed.wanted == (WantedOutput("Y", binary=True),)


def test_a_raw_request_for_bytes_is_one_element() -> None:
    served = a_version(("X", Datatype.BYTES, (-1, 1)))
    (tensor,) = parse(Head(json_bytes=0), b"hello", served).tensors
    assert (tensor.shape, bytes(tensor.data)) == ((1, 1), b"\5\0\0\0hello")


@pytest.mark.parametrize(
    ("served", "raw", "told"),
    [
        (a_version(), ONE_ROW[:15], "got 15 bytes, expected 16"),
        (a_version(("X", Datatype.FP32, (-1, -1))), b"", "multiple of 4"),
        (a_version(("X", Datatype.FP32, (-1, -1))), b"12345", "multiple of 4"),
        (a_version(("X", Datatype.FP32, (-1, -1, -1))), ONE_ROW, "leaves the shape"),
        (
            a_version(("A", Datatype.FP32, (-1,)), ("B", Datatype.FP32, (-1,))),
            ONE_ROW,
            "one input, this one has 2",
        ),
        (a_version(("X", Datatype.BYTES, (-1, 2))), b"hello", "asks for 2"),
    ],
)
def test_a_raw_request_that_leaves_the_shape_open_is_refused(
    served: ServedVersion, raw: bytes, told: str
) -> None:
    with pytest.raises(RequestError, match=told):
        parse(Head(json_bytes=0), raw, served)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        (b"gzip", gzip.compress(b"hello", mtime=0)),
        (b"gzip", gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0)),
        (b"deflate", zlib.compress(b"hello")),
    ],
)
def test_compressed_bodies_are_read(encoding: bytes, packed: bytes) -> None:
    assert decompressed(packed, encoding, 5) == b"hello"


@pytest.mark.parametrize(
    ("encoding", "packed", "reason"),
    [
        (b"gzip", gzip.compress(b"hello!", mtime=0), "too_large"),
        (b"gzip", gzip.compress(bytes(10**8), mtime=0), "too_large"),
        (b"gzip", gzip.compress(b"hel", mtime=0)[:-1], "invalid"),
        (b"gzip", gzip.compress(b"hel", mtime=0) + b"trailing", "invalid"),
        (b"gzip", b"", "invalid"),
        (b"gzip", zlib.compress(b"hel"), "invalid"),
        (b"deflate", zlib.compress(b"hel") + b"!", "invalid"),
        (b"deflate", gzip.compress(b"hel", mtime=0), "invalid"),
    ],
)
def test_a_compressed_body_that_is_broken_or_too_large_is_refused(
    encoding: bytes, packed: bytes, reason: str
) -> None:
    with pytest.raises(RequestError) as caught:
        decompressed(packed, encoding, 5)
    assert caught.value.reason == reason


def test_the_key_of_a_shape_is_remembered_but_not_that_of_a_value() -> None:
    batched, shared = ("X", Datatype.UINT8, (-1, 2)), ("K", Datatype.UINT8, ())
    parser = a_parser(a_version(batched, shared))

    def key(rows: int, value: int) -> tuple[str, int]:
        inputs = [
            {
                "name": "X",
                "shape": [rows, 2],
                "datatype": "UINT8",
                "data": [1] * 2 * rows,
            },
            {"name": "K", "shape": [], "datatype": "UINT8", "data": [value]},
        ]
        found = parser.parse(Head(), body(*inputs)).key
        return found.shape, found.rows

    assert key(1, 5) == key(1, 5)
    assert key(1, 5)[0] != key(1, 6)[0]
    assert key(2, 5) == (key(1, 5)[0], 2)
    alone = a_parser(a_version())
    shapes = [[1, 4], [3, 4], [1, 4]]
    rows = [
        alone.parse(Head(), body(x([1] * 4 * n, shape=[n, w]))).key.rows
        for n, w in shapes
    ]
    assert rows == [1, 3, 1]


def test_an_id_of_half_a_character_is_refused() -> None:
    text = body(x([float("nan"), 2, 3, 4]), id="half")
    with pytest.raises(RequestError, match="id is not valid Unicode"):
        parse_json(text.replace(b"half", b"\\ud800"))


@pytest.mark.parametrize(
    "parameters",
    [
        {"parameters": {"priority": 10**4000}},
        {"parameters": {"timeout": 10**4000}},
        {"parameters": {"timeout": -(10**4000)}},
    ],
)
def test_a_number_of_thousands_of_digits_is_not_echoed_whole(
    parameters: dict[str, Any],
) -> None:
    with pytest.raises(RequestError, match=r"1000.*\.\.\.") as caught:
        parse_json(body(x([1, 2, 3, 4]), **parameters))
    assert len(str(caught.value)) < 300


def test_a_size_of_thousands_of_digits_is_not_echoed_whole() -> None:
    with pytest.raises(RequestError, match=r"'X'.*1000.*\.\.\.") as caught:
        parse_binary(body(binary_x(10**4000)), ONE_ROW)
    assert len(str(caught.value)) < 300
