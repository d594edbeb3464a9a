"""What hides in a compressed body."""

import gzip
import os
import time
import zlib

import pytest

from headrace.errors import RequestError
from services.ingress.bounds import GZIP_MEMBERS_MAX, decompressed

LARGE = 2**24
NOTHING = gzip.compress(b"")


@pytest.mark.parametrize("size", [0, 1, 60_000, 65_536, 200_000, 3_000_000])
def test_members_of_any_size_are_one_body(size: int) -> None:
    parts = [os.urandom(size), b"", bytes(size), b"end"]
    body = b"".join(map(gzip.compress, parts))
    assert decompressed(body, b"gzip", LARGE) == b"".join(parts)
    assert decompressed(zlib.compress(parts[0]), b"deflate", LARGE) == parts[0]


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("size", [0, 1, 200_000])
def test_a_body_that_ends_too_early_or_too_late_is_told(
    encoding: bytes, size: int
) -> None:
    pack = gzip.compress if encoding == b"gzip" else zlib.compress
    body = pack(os.urandom(size))
    for cut in (0, 1, len(body) // 2, len(body) - 1):
        with pytest.raises(RequestError, match="ends before its end"):
            decompressed(body[:cut], encoding, LARGE)
    with pytest.raises(RequestError, match="is not gzip|3 bytes follow the end"):
        decompressed(body + b"abc", encoding, LARGE)


def test_the_limit_counts_over_members() -> None:
    body = gzip.compress(bytes(600)) * 2
    assert len(decompressed(body, b"gzip", 1200)) == 1200
    with pytest.raises(RequestError, match=r"1199 .*http_body_bytes_max") as caught:
        decompressed(body, b"gzip", 1199)
    assert caught.value.reason == "too_large"


def test_members_of_nothing_have_a_limit_and_cost_little() -> None:
    assert decompressed(NOTHING * GZIP_MEMBERS_MAX, b"gzip", LARGE) == b""
    body = NOTHING * 200_000
    started = time.process_time()
    with pytest.raises(RequestError, match=f"more than {GZIP_MEMBERS_MAX} members"):
        decompressed(body, b"gzip", LARGE)
    # Without the pieces each of them copies the 4 MB behind it: 6 s.
    assert time.process_time() - started < 1
