"""What travels between the runner and a generator."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from loadtest.stream import Outcome, Prepared, Records, Stream

instants = st.integers(-1, 2**62)
prepared = st.builds(Prepared, st.binary(max_size=40), st.binary(max_size=8))
addresses = st.tuples(
    st.ip_addresses(v=4).map(str),
    st.integers(1, 65_535),
)


@given(
    st.lists(addresses, min_size=1, max_size=3),
    st.lists(prepared, min_size=1, max_size=4),
    st.lists(instants, max_size=5) | st.none(),
)
def test_a_stream_arrives_as_it_was_sent(
    hosts: list[tuple[str, int]], requests: list[Prepared], times: list[int] | None
) -> None:
    arrivals = None if times is None else array("q", times)
    stream = Stream(hosts, requests, 9, 4, 5, 6, arrivals)
    assert Stream.decode(stream.encode()) == stream


@given(st.lists(st.tuples(instants, instants, instants, st.integers(0, 1)), max_size=5))
def test_records_arrive_as_they_were_written(
    rows: list[tuple[int, int, int, int]],
) -> None:
    columns = [array("q", [row[place] for row in rows]) for place in range(4)]
    table = [Outcome(200), Outcome(-1), Outcome(503, "overloaded")]
    scheduled, sent, ended, outcome = columns
    records = Records(scheduled, sent, ended, outcome, table, 7, 8)
    assert Records.decode(records.encode()) == records
