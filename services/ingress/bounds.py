"""How large a body may be before anything is made of it.

A tensor's elements take at least so many raw bytes, and a request's tensors together
at most ``payload_bytes_max``: so many elements fit, and JSON for more is refused by its
bytes alone. A parser would make an object of each, a hundred times its text.
"""

from __future__ import annotations

import re
import zlib

from headrace.domain import Datatype, Signature
from headrace.errors import RequestError
from services.ingress.head import Head

__all__ = ["HTTP_LIMIT", "MODEL_LIMIT", "PACKED_LIMIT", "BodyBounds", "decompressed"]

Bytes = bytes | bytearray | memoryview

COMMAS_BESIDE_DATA = 4_096
"""In a JSON part, beside those between elements."""

TEXT_BESIDE_DATA = 64 * 1024
"""Bytes of a JSON part beside the elements."""

OPENINGS_MAX = 65_536
"""Lists and objects of a JSON part; more are refused with 413: data that is nested so
finely is sent flat, or as binary tensor data."""

COUNTED_FROM_BYTES = 64 * 1024
"""What a smaller JSON part may hold is parsed in a millisecond or two."""

_WINDOW_BYTES = 256 * 1024
_WINDOW_BITS = {b"gzip": 31, b"deflate": 15}

GZIP_MEMBERS_MAX = 4_096
"""A gzip body of more members is refused with 400; tools that compress side by side
make one of 64 KiB or more."""

LESS = "binary tensor data takes less"
HTTP_LIMIT = f"a body may have (http_body_bytes_max); {LESS}"
MODEL_LIMIT = f"a request of this model takes (payload_bytes_max); {LESS}"
PACKED_LIMIT = (
    "a compressed request of this model takes (payload_bytes_max); without "
    "content-encoding it may be larger"
)
"""Where larger tensors go to a store: unpacking them would hold up everybody else."""

_PIECE_BYTES = 64 * 1024

_FLOAT_BYTES = 4
"""The narrowest numbers that JSON can give as NaN or Infinity take so many."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]', re.DOTALL)
"""A string, also an unended one, or what opens a list or an object."""


class BodyBounds:
    """The limits of one version's bodies. ``element_text_bytes`` is what JSON may
    take per element that fits."""

    def __init__(
        self, signature: Signature, payload_bytes_max: int, element_text_bytes: int
    ) -> None:
        # The text of a BYTES element may hold whatever is counted here.
        raw_bytes = min(
            (spec.datatype.item_bytes or 1 for spec in signature.inputs), default=1
        )
        elements_max = payload_bytes_max // raw_bytes
        self._payload_bytes_max = payload_bytes_max
        self._commas_max = elements_max + COMMAS_BESIDE_DATA
        self._floats_max = payload_bytes_max // _FLOAT_BYTES + COMMAS_BESIDE_DATA
        self._strings_max = COMMAS_BESIDE_DATA
        if any(spec.datatype is Datatype.BYTES for spec in signature.inputs):
            self._strings_max += payload_bytes_max // 4  # each with its length
        self.json_bytes_max = elements_max * element_text_bytes + TEXT_BESIDE_DATA

    def body_bytes_max(self, head: Head) -> int:
        """Of a decompressed body: its JSON part, and binary tensors."""
        if head.json_bytes is None:
            return self.json_bytes_max
        return min(head.json_bytes, self.json_bytes_max) + self._payload_bytes_max

    def check_json(self, text: Bytes) -> None:
        """Raises :class:`RequestError`, ``too_large``, for a JSON part that holds more
        than a request may, in milliseconds."""
        size = len(text)
        if size <= COUNTED_FROM_BYTES:
            return
        if size > self.json_bytes_max:
            raise _too_large(
                f"the JSON part has {size} bytes, at most {self.json_bytes_max} are "
                "allowed for this model"
            )
        raw = bytes(text)
        self._check_commas(raw, self._commas_max)
        if raw.count(b"[") + raw.count(b"{") > OPENINGS_MAX:
            self._check_openings(raw)

    def check_constants(self, text: bytes) -> None:
        """As :meth:`check_json`, for the slower reading of bare NaN and Infinity,
        which only floats have."""
        self._check_commas(text, self._floats_max)

    def _check_commas(self, text: bytes, most: int) -> None:
        commas = 0
        for at in range(0, len(text), _WINDOW_BYTES):
            commas += text.count(b",", at, at + _WINDOW_BYTES)
            if commas > most:
                raise _too_large(
                    "the JSON part holds more elements than the "
                    f"{self._payload_bytes_max} bytes of a request's tensors have room "
                    "for (payload_bytes_max)"
                )

    def _check_openings(self, text: bytes) -> None:
        """Count anew, without what stands in strings."""
        openings = strings = 0
        for token in _TOKEN.finditer(text):
            if text[token.start()] == ord('"'):
                strings += 1
            else:
                openings += 1
            if openings > OPENINGS_MAX or strings > self._strings_max:
                raise _too_large(
                    f"the JSON part holds more than {OPENINGS_MAX} lists and objects, "
                    f"or {self._strings_max} strings: send the data flat"
                )


def decompressed(
    body: Bytes, encoding: bytes, bytes_max: int, limit: str = HTTP_LIMIT
) -> bytes:
    """The body behind a content encoding, one that stays within ``bytes_max``, which
    is told as ``limit``.

    Raises :class:`RequestError`, of reason ``too_large`` for a body above.
    """
    whole = bytearray()
    members = 0
    unpacker = None
    left = memoryview(body)
    # Piece by piece: an unpacker copies all that follows its end, and an empty member
    # takes 20 bytes.
    while left or unpacker is None:
        if unpacker is None:
            members += 1
            if members > (GZIP_MEMBERS_MAX if encoding == b"gzip" else 1):
                raise RequestError(_too_many(encoding, len(left)))
            unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
        piece = left[:_PIECE_BYTES]
        try:
            whole += unpacker.decompress(piece, bytes_max + 1 - len(whole))
        except zlib.error as error:
            raise RequestError(
                f"the body is not {encoding.decode()} as its content-encoding says: "
                f"{error}"
            ) from error
        if len(whole) > bytes_max:
            raise RequestError(
                f"the body is larger than {bytes_max} bytes when decompressed, more "
                f"than {limit}",
                reason="too_large",
            )
        if unpacker.eof:
            left = left[len(piece) - len(unpacker.unused_data) :]
            if not left:
                return bytes(whole)
            unpacker = None
        else:
            left = left[len(piece) - len(unpacker.unconsumed_tail) :]
    raise RequestError(f"the {encoding.decode()} body ends before its end")


def _too_many(encoding: bytes, left: int) -> str:
    if encoding == b"gzip":
        return f"the gzip body has more than {GZIP_MEMBERS_MAX} members"
    return f"{left} bytes follow the end of the deflate body"


def _too_large(text: str) -> RequestError:
    return RequestError(f"{text}; {LESS}", reason="too_large")
