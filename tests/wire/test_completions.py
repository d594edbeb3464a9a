"""What a worker says of batches, from it to the former."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import (
    Completion,
    Done,
    DoneMember,
    HeldBatch,
    Joined,
    Left,
    MemberStatus,
    Refused,
    Reported,
    Source,
    StaleWritten,
)
from headrace.errors import UndecodableRecord
from headrace.wire import (
    SourceTable,
    decode_completion,
    encode_completion,
    encode_done,
)
from headrace.wire._generated import headrace_pb2 as pb
from tests.wire.records import an_envelope

UUIDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
NUMBERS = st.integers(0, 2**31 - 1)
TIMES_US = st.integers(0, 86_400_000_000)
OFFSETS = st.integers(0, 2**63 - 1)
SOURCES = st.builds(
    Source, st.sampled_from(["requests.a", "requests.b"]), st.integers(0, 7), OFFSETS
)
COMPLETIONS: st.SearchStrategy[Completion] = st.one_of(
    st.builds(
        Joined, NUMBERS, st.sampled_from(["", "signal:SEGV"]), NUMBERS, st.text()
    ),
    st.builds(Left, NUMBERS, OFFSETS),
    st.builds(
        Refused,
        batch=UUIDS | st.just(""),
        k=OFFSETS,
        slot=NUMBERS,
        incarnation=OFFSETS,
        reason=st.sampled_from(["epoch", "incarnation", "lane", "cap"]),
        epoch_seen=OFFSETS,
    ),
    st.builds(
        Reported,
        slot=NUMBERS,
        incarnation=OFFSETS,
        epoch=OFFSETS,
        former=UUIDS,
        k=OFFSETS,
        draining=st.booleans(),
        models=st.frozensets(st.sampled_from(["a/1", "a/2", "b/1"])),
        held=st.lists(
            st.builds(HeldBatch, UUIDS, st.lists(SOURCES, max_size=4).map(tuple)),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(
        Done,
        batch=UUIDS,
        slot=NUMBERS,
        incarnation=OFFSETS,
        rows=NUMBERS,
        wait_us=TIMES_US,
        run_us=TIMES_US,
        members=st.lists(
            st.builds(
                DoneMember,
                source=SOURCES,
                id=st.sampled_from(["a", "b"]),
                status=st.sampled_from(MemberStatus),
                reason=st.sampled_from(["", "oom"]),
                text=st.sampled_from(["", "no memory"]),
            ),
            max_size=4,
        ).map(tuple),
        input_us=TIMES_US,
        output_us=TIMES_US,
        model=st.text(),
        version=st.text(),
        order=st.binary(),
    ),
    st.builds(
        StaleWritten,
        topic=st.text(),
        partition=NUMBERS,
        ranges=st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3).map(tuple),
    ),
)


@given(COMPLETIONS)
def test_a_completion_comes_as_it_went(completion: Completion) -> None:
    assert decode_completion(an_envelope(encode_completion(completion))) == completion


def a_done(*statuses: MemberStatus) -> Done:
    return Done(
        batch="ab" * 16,
        slot=3,
        incarnation=12,
        rows=len(statuses),
        wait_us=1,
        run_us=2,
        members=tuple(
            DoneMember(Source("requests.a", 2, offset), f"id-{offset}", status, "", "")
            for offset, status in enumerate(statuses)
        ),
    )


def test_a_batch_that_went_well_says_so_once() -> None:
    value = encode_completion(a_done(*[MemberStatus.OK] * 100))
    done = pb.Completion.FromString(value).done
    assert (len(done.status), len(done.reason), len(done.sources)) == (1, 1, 1)
    assert len(done.ids) == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(MemberStatus), st.sampled_from(["", "oom"])),
        min_size=1,
        max_size=4,
    )
)
def test_a_done_whose_members_stand_in_columns_is_the_same(
    endings: list[tuple[MemberStatus, str]],
) -> None:
    members = tuple(
        DoneMember(Source(f"requests.{n % 2}", n % 3, n), f"id-{n}", *ending, "text")
        for n, ending in enumerate(endings)
    )
    done = msgspec.structs.replace(a_done(), members=members)
    columns = SourceTable(each.source for each in members), [m.id for m in members]
    assert encode_done(a_done(), *columns, members) == encode_completion(done)
    if len(set(endings)) == 1:
        assert encode_done(a_done(), *columns, members[:1]) == encode_completion(done)


def test_the_bytes_of_a_done_are_these() -> None:
    assert encode_completion(a_done(MemberStatus.OK, MemberStatus.RETRY)) == (
        b"\x1aI\n\x10" + b"\xab" * 16 + b"\x10\x03\x18\x0c \x02(\x018\x02"
        b"R\x0e\n\nrequests.a\x10\x02Z\x02\x00\x00b\x02\x00\x01"
        b"j\x04id-0j\x04id-1r\x02\x00\x02z\x00\x82\x01\x00"
    )


def test_a_column_of_another_length_is_undecodable() -> None:
    done = pb.Completion.FromString(encode_completion(a_done(*[MemberStatus.OK] * 3)))
    done.done.status.append(pb.OK)
    with pytest.raises(UndecodableRecord):
        decode_completion(an_envelope(done.SerializeToString()))


def test_a_stage_takes_at_least_nothing_and_at_most_a_day() -> None:
    done = pb.Completion.FromString(encode_completion(a_done(MemberStatus.OK)))
    done.done.wait_us, done.done.run_us = -(2**62), 2**62
    read = decode_completion(an_envelope(done.SerializeToString()))
    assert isinstance(read, Done)
    assert (read.wait_us, read.run_us) == (0, 86_400_000_000)


def test_a_status_that_is_not_known_is_undecodable() -> None:
    done = pb.Completion.FromString(encode_completion(a_done(MemberStatus.OK)))
    changed = done.SerializeToString().replace(b"r\x01\x00", b"r\x01\x63")
    assert changed != done.SerializeToString()
    with pytest.raises(UndecodableRecord):
        decode_completion(an_envelope(changed))


@given(value=st.none() | st.binary(max_size=60))
def test_any_bytes_are_a_completion_or_undecodable(value: bytes | None) -> None:
    try:
        decode_completion(an_envelope(value))
    except UndecodableRecord:
        return
