"""What an address of a Kafka may look like."""

import pytest

from headrace.broker import checked_servers


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "a:1,b:65535",
        "a:1, b:2",
        "kafka",
        "kafka-0.kafka.svc.cluster.local:9092",
        "[::1]:9092",
        "PLAINTEXT://h:9092",
        "a_b:9092",
    ],
)
def test_addresses_are_let_through_as_they_are(text: str) -> None:
    assert checked_servers(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no broker: write HOST:PORT"),
        ("a:1,", "'' is no broker"),
        ("a:", "'a:' is no broker"),
        (":9092", "':9092' is no broker"),
        ("a:b", "'a:b' is no broker"),
        ("a b:1", "'a b:1' is no broker"),
        ("http://h:1/x", "'http://h:1/x' is no broker"),
        ("garbage:99999", "'garbage:99999': a port is from 1 to 65535"),
        ("a:1,b:0", "'b:0': a port is from 1 to 65535"),
    ],
)
def test_what_is_no_address_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="no broker|a port") as refused:
        checked_servers(text)
    assert str(refused.value).startswith(said)
