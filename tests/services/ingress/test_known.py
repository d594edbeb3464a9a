"""What comes again is recognised as a whole, or not at all."""

import pytest

from headrace.errors import RequestError
from services.ingress.head import Head, Target
from services.ingress.known import KNOWN_HEAD_BYTES_MAX, KnownHead, known_head
from tests.services.ingress.models import a_parser, a_version
from tests.services.ingress.test_parsing import binary_x, body

TARGET = Target("m", "")
HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\n"


def known(data: bytes, length: int | None = 4) -> KnownHead | None:
    return known_head(data, TARGET, Head(content_length=length))


def test_a_request_with_the_same_head_and_another_body_begins_with_it() -> None:
    first = known(HEAD + b"abcd")
    assert first is not None
    assert first.text == HEAD
    assert first.begins(HEAD + b"wxyz")


def test_more_or_less_than_one_request_does_not_begin_with_it() -> None:
    first = known(HEAD + b"abcd")
    assert first is not None
    assert not first.begins(HEAD + b"abc")
    assert not first.begins(HEAD + b"abcde")
    assert not first.begins(HEAD.replace(b"h\r", b"g\r") + b"abcd")


def test_two_requests_in_one_piece_are_not_taken_for_one_head() -> None:
    assert known(HEAD + b"abcd" + HEAD + b"abcd") is None


def test_a_body_that_holds_an_empty_line_is_not_taken_for_a_head() -> None:
    assert known(HEAD + b"\r\n\r\n") == KnownHead(
        HEAD, len(HEAD) + 4, TARGET, Head(content_length=4)
    )
    assert known(HEAD + b"a\r\n\r\nb", length=2) is None


def test_a_head_without_length_or_too_long_is_not_remembered() -> None:
    assert known(HEAD + b"abcd", length=None) is None
    long = HEAD.replace(b"h\r", b"h" * KNOWN_HEAD_BYTES_MAX + b"\r")
    assert known(long + b"abcd") is None


def test_a_json_part_seen_before_means_the_same_with_other_values() -> None:
    parser = a_parser(a_version())
    json_part = body(binary_x(16))
    head = Head(json_bytes=len(json_part))
    first = bytes(range(16))
    second = bytes(range(16, 32))

    read = [parser.parse(head, json_part + each) for each in (first, second)]

    assert [bytes(each.tensors[0].data) for each in read] == [first, second]
    assert read[0].key == read[1].key
    with pytest.raises(RequestError, match="binary_data_size"):
        parser.parse(head, json_part + second + b"x")
