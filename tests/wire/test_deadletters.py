from __future__ import annotations

import msgspec
import pytest

from headrace.domain import DeadLetter, Reason, Source
from headrace.errors import UndecodableRecord
from headrace.wire import Record, dead_letter, decode_dead_letter
from headrace.wire.headers import parse_source, source_text
from tests.wire.records import INGRESS, a_new_request

LETTER = DeadLetter(
    source=Source("headrace.requests.digits", 2, 77),
    id="0190" + "0" * 28,
    tenant="acme",
    model="digits",
    reason=Reason.POISON,
    text="no such row",
    attempts=2,
)


def an_original() -> Record:
    headers, value = INGRESS.encode(a_new_request(), 0)
    return Record(*LETTER.source, 0, None, value, headers)


def as_read(letter: DeadLetter, original: Record | None) -> Record:
    key, headers, value = dead_letter(letter, original)
    return Record("headrace.deadletters.digits", 0, 5, 0, key, value, list(headers))


def test_a_dead_letter_gives_the_original_back() -> None:
    original = an_original()

    letter, headers, value = decode_dead_letter(as_read(LETTER, original))

    assert letter == LETTER
    assert (headers, value) == (original.headers, original.value)


def test_a_dead_letter_without_its_original_says_what_was_known() -> None:
    letter, _, value = decode_dead_letter(as_read(LETTER, None))

    assert (letter, value) == (LETTER, None)


@pytest.mark.parametrize(
    ("place", "header"),
    [
        (0, ("inf-reason", b"boredom")),
        (2, ("inf-source", b"somewhere")),
        (3, ("inf-attempt", b"often")),
        (1, ("ce_id", b"not ours")),
    ],
)
def test_what_is_no_dead_letter_is_refused(
    place: int, header: tuple[str, bytes]
) -> None:
    record = as_read(LETTER, an_original())
    headers = [*record.headers[:place], header, *record.headers[place + 1 :]]

    with pytest.raises(UndecodableRecord):
        decode_dead_letter(msgspec.structs.replace(record, headers=headers))


def test_a_place_in_the_log_is_written_and_read() -> None:
    assert parse_source(source_text(LETTER.source)) == LETTER.source
    with pytest.raises(UndecodableRecord, match="no topic/partition/offset"):
        parse_source(None)
