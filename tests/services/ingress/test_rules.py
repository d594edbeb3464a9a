"""What HTTP asks of a head, one rule after another."""

import pytest

from services.ingress.rules import broken_rule

HOST = (b"host", b"h")


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        ("1.1", [HOST]),
        ("1.1", [(b"host", b"")]),
        ("1.1", [(b"expect", b"100-Continue "), HOST]),
        ("1.0", []),
        ("1.0", [HOST]),
    ],
)
def test_a_head_that_keeps_the_rules_passes(
    version: str, headers: list[tuple[bytes, bytes]]
) -> None:
    assert broken_rule(version, headers) is None


@pytest.mark.parametrize(
    ("version", "headers", "status", "text"),
    [
        ("2.0", [HOST], 505, "this server speaks HTTP/1.1 and 1.0, not HTTP/2.0"),
        ("0.9", [], 505, "this server speaks HTTP/1.1 and 1.0, not HTTP/0.9"),
        ("1.1", [], 400, "a request of HTTP/1.1 has one header host, this one has 0"),
        (
            "1.1",
            [HOST, HOST],
            400,
            "a request of HTTP/1.1 has one header host, this one has 2",
        ),
        (
            "1.1",
            [HOST, (b"expect", b"foo")],
            417,
            "only 100-continue can be expected, got 'foo'",
        ),
    ],
)
def test_a_broken_rule_is_told(
    version: str, headers: list[tuple[bytes, bytes]], status: int, text: str
) -> None:
    refusal = broken_rule(version, headers)
    assert refusal is not None
    assert (refusal.status, refusal.text) == (status, text)
