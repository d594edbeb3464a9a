"""Answers of one record share what is alike, and only that."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Datatype, Priority, Tensor
from headrace.wire import Replies, RunFacts
from services.ingress.answers import result_answer
from services.ingress.head import Head
from services.ingress.parsing import WantedOutput
from services.ingress.results import Results
from tests.services.ingress.world import HeldExchange, World

RECORD = Replies("b1", "m", "1", 1, 4, RunFacts("0/1", 1, 2, 3, 4), [])
WISHES = [
    (WantedOutput("Y", binary=True), WantedOutput("Z", binary=True)),
    (WantedOutput("Z", binary=True), WantedOutput("Y", binary=True)),
    (WantedOutput("Y", binary=True),),
    (WantedOutput("Y", binary=True), WantedOutput("Z", binary=False)),
]


@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(WISHES),
            st.integers(1, 2),
            st.sampled_from([b"", b"a trace"]),
            st.sampled_from(["", "", "mine"]),
            st.sampled_from([b"", b"", b"gzip"]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_an_answer_is_the_same_beside_whichever_others(
    asked: list[tuple[tuple[WantedOutput, ...], int, bytes, str, bytes]],
) -> None:
    handler = World().handler
    results = Results(RECORD)
    for number, (wanted, rows, x_request_id, client_id, encoding) in enumerate(asked):
        exchange = HeldExchange(handler)
        exchange.head = Head(x_request_id=x_request_id, accept_encoding=encoding)
        exchange.wanted, exchange.client_id = wanted, client_id
        raw = bytes([number + 1]) * 4 * rows
        outputs = (
            Tensor("Y", Datatype.UINT8, (rows, 4), raw),
            Tensor("Z", Datatype.INT32, (rows,), raw[::-1]),
        )
        fields, body = results.answer(exchange, outputs)
        expected_fields, expected = result_answer(exchange, "m", "1", outputs)
        assert (fields, b"".join(body)) == (expected_fields, b"".join(expected))


def test_what_was_sent_is_told_by_priority() -> None:
    results = Results(RECORD)
    for priority, latency_us in [
        (Priority.BULK, 7),
        (Priority.STANDARD, 2),
        (Priority.BULK, 9),
    ]:
        results.took(priority, latency_us, 3)
    assert results.latencies_us == {Priority.BULK: [7, 9], Priority.STANDARD: [2]}
    assert results.rows == 9
