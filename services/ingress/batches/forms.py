"""A multipart form with one file, read as it arrives."""

from __future__ import annotations

from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from services.ingress.batches.objects import ApiError

__all__ = ["Form"]

FIELD_BYTES_MAX: Final = 4096
FIELDS_MAX: Final = 16
"""Beyond either the form is refused. The parser limits the headers of a part."""

_FILE: Final = "file"


class Form:
    """``fields`` by name; the bytes of the part ``file`` come out of :meth:`feed`.

    Raises :class:`ApiError`, as does :meth:`feed`.
    """

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise ApiError(
                "the body must be multipart/form-data with the fields purpose and "
                f"file, got the content type {content_type[:80]!r}"
            )
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        """None: no part ``file`` has begun."""

        self.is_whole = False
        self._pieces: list[bytes] = []
        self._name = ""
        self._value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._header = (bytearray(), bytearray())
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._part_begin,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
        )

    def feed(self, data: bytes) -> list[bytes]:
        """What came of the file."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise ApiError(f"the body is no multipart form: {error}") from error
        pieces, self._pieces = self._pieces, []
        return pieces

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _part_begin(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        self._value.clear()
        if self._name == _FILE:
            if self.filename is not None:
                raise ApiError("the form has two parts 'file'", param=_FILE)
            filename = options.get(b"filename", b"").decode(errors="replace")
            self.filename = filename[:255] or "upload"

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == _FILE:
            self._pieces.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES_MAX:
            raise ApiError(
                f"the field {self._name[:80]!r} is limited to {FIELD_BYTES_MAX} bytes",
                status=413,
                param=self._name[:80],
            )

    def _part_end(self) -> None:
        if self._name != _FILE:
            if len(self.fields) >= FIELDS_MAX:
                raise ApiError(f"the form has more than {FIELDS_MAX} fields")
            self.fields[self._name] = self._value.decode(errors="replace")

    def _end(self) -> None:
        self.is_whole = True
