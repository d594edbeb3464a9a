"""Records that ended without an answer, kept with the reason."""

from __future__ import annotations

from typing import NamedTuple

from headrace.domain import DeadLetter, Reason
from headrace.errors import UndecodableRecord
from headrace.wire import headers as names
from headrace.wire.records import Headers, Outgoing, Record
from headrace.wire.requests import TENANT_DEFAULT

__all__ = ["Buried", "dead_letter", "decode_dead_letter"]

TEXT_CHARACTERS_MAX = 2000
OUR_HEADERS = (names.REASON, names.TEXT, names.SOURCE, names.ATTEMPT)


def dead_letter(letter: DeadLetter, original: Record | None) -> Outgoing:
    """Key, headers and value of ``original``, with the reason in headers of ours in
    front; without it, when the log no longer has it, what is known of it.

    The key is the original's where it has one, else the request's id.
    """
    ours: list[tuple[str, bytes | None]] = [
        (names.REASON, letter.reason.encode()),
        (names.TEXT, letter.text[:TEXT_CHARACTERS_MAX].encode()),
        (names.SOURCE, names.source_text(letter.source)),
        (names.ATTEMPT, b"%d" % letter.attempts),
    ]
    if original is None:
        known: list[tuple[str, bytes | None]] = [
            (names.CE_ID, letter.id.encode()),
            (names.TENANT, letter.tenant.encode()),
            (names.MODEL, letter.model.encode()),
        ]
        return Outgoing(letter.id.encode(), ours + known, None)
    key = original.key or letter.id.encode()
    return Outgoing(key, ours + original.headers, original.value)


class Buried(NamedTuple):
    """A dead letter as read. ``headers`` and ``value`` are the original record's, or
    what was known of it."""

    letter: DeadLetter
    headers: Headers
    value: bytes | None


def decode_dead_letter(record: Record) -> Buried:
    """The inverse of :func:`dead_letter`.

    Raises :class:`headrace.errors.UndecodableRecord`.
    """
    count = len(OUR_HEADERS)
    ours, original = record.headers[:count], record.headers[count:]
    if tuple(name for name, _ in ours) != OUR_HEADERS:
        raise UndecodableRecord(
            f"not a dead letter: it does not begin with the headers "
            f"{', '.join(OUR_HEADERS)}"
        )
    reason, text, source, attempts = (value or b"" for _, value in ours)
    known = dict(original)
    try:
        letter = DeadLetter(
            source=names.parse_source(source),
            id=(known.get(names.CE_ID) or b"").decode(errors="replace"),
            tenant=(known.get(names.TENANT) or b"").decode(errors="replace")
            or TENANT_DEFAULT,
            model=record.topic.rpartition(".")[2],
            reason=Reason(reason.decode()),
            text=text.decode(),
            attempts=int(attempts),
        )
    except ValueError as error:
        raise UndecodableRecord(f"not a dead letter: {error}") from error
    return Buried(letter, original, record.value)
