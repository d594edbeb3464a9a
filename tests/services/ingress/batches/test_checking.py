from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import RequestError
from services.ingress.batches.checking import Call, Checker, Fault, survey
from services.ingress.batches.reading import Line
from tests.services.ingress.batches.lines import ENDPOINT, a_body, a_line, a_parser


def check(line: Line, *repeated: int) -> Call | Fault:
    return Checker(a_parser(), ENDPOINT, repeated).check(line)


def test_a_good_line_is_a_request() -> None:
    call = check(a_line(body=a_body([1, 2], id="mine")))
    assert isinstance(call, Call)
    assert (call.custom_id, call.parsed.client_id) == ("id-0", "mine")
    assert call.parsed.key.rows == 1
    assert [output.name for output in call.parsed.wanted] == ["y"]


def test_a_line_may_hold_the_tokens_that_json_lacks() -> None:
    data = a_line(body=a_body([float("nan"), float("-inf")])).data
    assert data is not None
    assert b"NaN" in data
    call = check(Line(0, 1, data))
    assert isinstance(call, Call)
    (tensor,) = call.parsed.tensors
    assert bytes(tensor.data)[4:] == b"\x00\x00\x80\xff"


@pytest.mark.parametrize(
    ("line", "code", "custom_id", "text"),
    [
        (Line(0, 1, b"not json"), "invalid_json_line", None, "not a JSON object"),
        (Line(0, 1, b"[NaN]"), "invalid_json_line", None, "not a JSON object"),
        (Line(0, 1, b'{"custom_id": "\xff"}'), "invalid_json_line", None, ""),
        (Line(0, 1, b"[" * 100_000), "invalid_json_line", None, ""),
        (Line(0, 1, None), "invalid_json_line", None, "batch_line_bytes_max"),
        (a_line(custom_id=None), "invalid_custom_id", None, "1 to 512"),
        (a_line(custom_id=7), "invalid_custom_id", None, ""),
        (a_line(custom_id=""), "invalid_custom_id", None, ""),
        (a_line(custom_id="x" * 513), "invalid_custom_id", None, ""),
        (a_line(method="GET"), "invalid_method", "id-0", "'GET'"),
        (a_line(url="/v1/embeddings"), "invalid_url", "id-0", ENDPOINT),
        (a_line(url=None), "invalid_url", "id-0", "got nothing"),
        (a_line(body=[1]), "invalid_body", "id-0", "object"),
        (a_line(body=None), "invalid_body", "id-0", "object"),
        (a_line(body=a_body([1, 2, 3])), "invalid", "id-0", "3 elements"),
        (a_line(body=a_body([1, 2, 3], [1, 3])), "invalid", "id-0", "x"),
        (a_line(body={"inputs": []}), "invalid", "id-0", "lacks"),
        (a_line(body={}), "invalid", "id-0", "inputs"),
        (
            a_line(body=a_body([1, 2], parameters={"binary_data_output": True})),
            "invalid",
            "id-0",
            "binary",
        ),
        (a_line(body=a_body([0] * 18, [9, 2])), "invalid", "id-0", "8"),
    ],
)
def test_a_bad_line_is_told(
    line: Line, code: str, custom_id: str | None, text: str
) -> None:
    fault = check(line)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.custom_id) == (code, custom_id)
    assert text in fault.text
    assert fault.is_answer == (code == "invalid")


def test_the_second_line_of_an_id_is_told_and_the_first_runs() -> None:
    def named(item: int, name: Any) -> Line:
        return a_line(item, custom_id=name)

    lines = [named(0, "a"), named(1, "b"), named(2, "a"), named(3, 1), named(4, "b")]
    found = survey([*lines, Line(5, 6, b"{")], 6)

    assert found == (6, {2, 4})
    assert isinstance(check(lines[0], *found.repeated), Call)
    fault = check(lines[2], *found.repeated)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.custom_id) == ("duplicate_custom_id", "a")


def test_a_file_needs_a_line_and_may_not_have_too_many() -> None:
    with pytest.raises(RequestError, match="no lines"):
        survey([], 2)
    with pytest.raises(RequestError, match="more than 2 lines"):
        survey(map(a_line, range(3)), 2)
