"""Records that ended without an answer, kept with the reason."""

from __future__ import annotations

from headrace.domain import DeadLetter
from headrace.wire import headers as names
from headrace.wire.records import Outgoing, Record

__all__ = ["dead_letter"]

TEXT_CHARACTERS_MAX = 2000


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
