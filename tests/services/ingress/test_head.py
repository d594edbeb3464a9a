"""What a head may say."""

import pytest

from headrace.domain import Priority
from services.ingress.head import Target, read_head, read_target
from services.ingress.refusal import Refusal


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (b"/v2/models/m/infer", Target("m", "")),
        (b"/v2/models/m/versions/3/infer", Target("m", "3")),
        (b"/v2/models/m%2fx/infer", Target("m%2fx", "")),
        (b"/v2/models//infer", None),
        (b"/v2/models//versions/1/infer", None),
        (b"/v2/models/m/versions//infer", None),
        (b"/v2/models/m//infer", None),
        (b"/v2/models/m/infer/", None),
        (b"//v2/models/m/infer", None),
        (b"/v2/models/m/x/infer", None),
        (b"/v2/models/a/../../b/infer", None),
        (b"/v2/models/m/versions/3/4/infer", None),
    ],
)
def test_a_target_is_read_as_it_stands(path: bytes, target: Target | None) -> None:
    assert read_target(path) == target


@pytest.mark.parametrize(
    "name",
    [
        b"inference-header-content-length",
        b"content-encoding",
        b"headrace-tenant",
        b"headrace-priority",
        b"headrace-timeout-ms",
        b"x-request-id",
    ],
)
def test_a_header_given_twice_is_a_fault_even_when_equal(name: bytes) -> None:
    value = {b"content-encoding": b"gzip", b"headrace-priority": b"bulk"}.get(name)
    once = (name, value or b"1")
    assert faults([once]) == []
    (fault,) = faults([once, once])
    assert (fault.status, fault.text) == (
        400,
        f"the header {name.decode()} is given twice",
    )


def test_the_first_fault_is_told_and_the_rest_is_read_on() -> None:
    head = read_head(
        [
            (b"headrace-tenant", b"a.b"),
            (b"content-encoding", b"br"),
            (b"x-request-id", b"theirs"),
        ]
    )
    assert head.fault is not None
    assert "headrace-tenant" in head.fault.text
    assert head.x_request_id == b"theirs"


@pytest.mark.parametrize(
    "headers",
    [
        [(b"headrace-timeout-ms", b"soon"), (b"headrace-timeout-ms", b"5")],
        [(b"headrace-priority", b"urgent"), (b"headrace-priority", b"bulk")],
    ],
)
def test_a_wrong_value_is_no_value_whatever_follows(
    headers: list[tuple[bytes, bytes]],
) -> None:
    head = read_head(headers)
    assert (head.priority, head.timeout_us, head.fault) == (None, 0, None)
    (fault,) = faults(headers)
    assert repr(headers[0][1].decode()) in fault.text


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        ((b"headrace-priority", b"bulk \t"), "priority", Priority.BULK),
        ((b"headrace-timeout-ms", b"5 "), "timeout_us", 5_000),
        ((b"inference-header-content-length", b"7 "), "json_bytes", 7),
        ((b"headrace-tenant", b"a "), "tenant", "a"),
    ],
)
def test_blanks_behind_a_value_are_not_of_it(
    header: tuple[bytes, bytes], field: str, value: object
) -> None:
    assert faults([header]) == []
    assert getattr(read_head([header]), field) == value


def faults(headers: list[tuple[bytes, bytes]]) -> list[Refusal]:
    head = read_head(headers)
    found = (head.fault, head.priority_fault, head.timeout_fault)
    return [fault for fault in found if fault is not None]


def test_defaults() -> None:
    head = read_head([(b"host", b"h"), (b"user-agent", b"u"), (b"user-agent", b"v")])
    assert (head.fault, head.priority, head.timeout_us, head.tenant) == (
        None,
        None,
        0,
        "default",
    )
    assert read_head([(b"headrace-priority", b"realtime")]).priority == (
        Priority.REALTIME
    )
