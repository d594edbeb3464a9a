"""What a line of a batch asks for, or what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import RequestError
from services.ingress.batches.reading import Line
from services.ingress.head import Head
from services.ingress.parsing import Parsed, RequestParser

__all__ = ["CUSTOM_ID_MAX", "Call", "Checker", "Fault", "Survey", "survey"]

CUSTOM_ID_MAX: Final = 512
"""Characters of a ``custom_id``; more are refused."""

_DIGEST_BYTES: Final = 16


class Fault(NamedTuple):
    """Why a line is no request. ``code``: the API's word, or ``invalid`` and its kind
    for what the model's signature does not allow. ``custom_id`` None: it has none that
    can be told."""

    custom_id: str | None
    code: str
    text: str
    is_answer: bool = False
    """A request by itself would get this text as its answer."""


class Call(NamedTuple):
    custom_id: str
    parsed: Parsed


class _Line(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"")


class Survey(NamedTuple):
    """``repeated``: items whose ``custom_id`` an earlier one has."""

    lines: int
    repeated: frozenset[int]


class _Unread(Exception):
    """A line that is no JSON object."""


_decode = msgspec.json.Decoder(_Line).decode
_HEAD: Final = Head()


def survey(lines: Iterable[Line], lines_max: int) -> Survey:
    """Look at every line once.

    Raises :class:`RequestError` for a file without lines, or with too many.
    """
    count = 0
    seen: set[bytes] = set()
    repeated = set()
    for line in lines:
        count += 1
        if count > lines_max:
            raise RequestError(
                f"the file has more than {lines_max} lines (batch_lines_max): send "
                "several batches, or a job (headrace jobs)"
            )
        try:
            custom_id = _read(line).custom_id
        except _Unread:
            continue
        if _is_name(custom_id):
            digest = blake2b(_encoded(custom_id), digest_size=_DIGEST_BYTES).digest()
            if digest in seen:
                repeated.add(line.item)
            seen.add(digest)
    if not count:
        raise RequestError("the file has no lines")
    return Survey(count, frozenset(repeated))


class Checker:
    """Checks lines that go to ``endpoint``, whose model ``parser`` knows."""

    def __init__(
        self, parser: RequestParser, endpoint: str, repeated: Collection[int]
    ) -> None:
        self._parser = parser
        self._endpoint = endpoint
        self._repeated = repeated

    def check(self, line: Line) -> Call | Fault:
        try:
            read = _read(line)
        except _Unread as error:
            return Fault(None, "invalid_json_line", str(error))
        custom_id = read.custom_id
        if not _is_name(custom_id):
            return Fault(
                None,
                "invalid_custom_id",
                f"custom_id must be a text of 1 to {CUSTOM_ID_MAX} characters",
            )
        fault = self._envelope_fault(line, read)
        if fault is not None:
            return Fault(custom_id, *fault)
        try:
            parsed = self._parser.parse(_HEAD, bytes(read.body))
        except RequestError as error:
            return Fault(custom_id, str(error.reason), str(error), is_answer=True)
        for name, is_binary in parsed.wanted:
            if is_binary:
                text = f"output '{name}' is asked for as binary: a line takes JSON"
                return Fault(custom_id, "invalid", text, is_answer=True)
        return Call(custom_id, parsed)

    def _envelope_fault(self, line: Line, read: _Line) -> tuple[str, str] | None:
        if line.item in self._repeated:
            return "duplicate_custom_id", "an earlier line has this custom_id"
        if read.method != "POST":
            return "invalid_method", f"method must be POST, got {_shown(read.method)}"
        if read.url != self._endpoint:
            text = f"url must be the batch's endpoint, {self._endpoint}, got "
            return "invalid_url", text + _shown(read.url)
        if not bytes(read.body).startswith(b"{"):
            return "invalid_body", "body must be an object, an inference request"
        return None


def _read(line: Line) -> _Line:
    if line.data is None:
        raise _Unread("the line is too long (batch_line_bytes_max)")
    try:
        return _decode(line.data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if b"NaN" in line.data or b"Infinity" in line.data:
            return _read_with_constants(line.data)
        raise _Unread(f"the line is not a JSON object: {error}") from error


def _read_with_constants(data: bytes) -> _Line:
    """The three tokens that JSON lacks, read bare as everywhere."""
    try:
        found = json.loads(data)
        if not isinstance(found, dict):
            raise _Unread("the line is not a JSON object")
        body = json.dumps(found.get("body")).encode()
    except (ValueError, RecursionError) as error:
        raise _Unread(f"the line is not a JSON object: {error}") from error
    custom_id, method, url = map(found.get, ("custom_id", "method", "url"))
    return _Line(custom_id, method, url, msgspec.Raw(body))


def _is_name(given: object) -> bool:
    return isinstance(given, str) and 1 <= len(given) <= CUSTOM_ID_MAX


def _encoded(given: str) -> bytes:
    return given.encode("utf-8", "surrogatepass")


def _shown(given: object) -> str:
    return "nothing" if given is None else repr(given)[:100]
