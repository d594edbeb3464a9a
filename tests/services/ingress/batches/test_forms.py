from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingress.batches.forms import Form
from services.ingress.batches.objects import ApiError

KIND = "multipart/form-data; boundary=xyz"


def a_part(name: str, value: bytes, filename: str = "") -> bytes:
    more = f'; filename="{filename}"' if filename else ""
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"{more}\r\n'
    return head.encode() + b"Content-Type: text/plain\r\n\r\n" + value + b"\r\n"


def read(content: bytes, piece: int = 1000) -> tuple[Form, bytes]:
    form = Form(KIND)
    found = b""
    for at in range(0, len(content), piece):
        found += b"".join(form.feed(content[at : at + piece]))
    return form, found


@given(st.binary(max_size=40), st.integers(1, 50), st.permutations(["file", "purpose"]))
def test_a_form_is_read_however_it_arrives(
    content: bytes, piece: int, order: list[str]
) -> None:
    content = content.replace(b"--xyz", b"")
    parts = {
        "file": a_part("file", content, "in.jsonl"),
        "purpose": a_part("purpose", b"batch"),
    }
    form, found = read(b"".join(parts[each] for each in order) + b"--xyz--", piece)
    assert found == content
    assert form.fields == {"purpose": "batch"}
    assert form.filename == "in.jsonl"
    assert form.is_whole


def test_a_form_that_breaks_off_is_not_whole() -> None:
    form, _ = read(a_part("file", b"abc", "f"))
    assert not form.is_whole


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"nonsense", "no multipart form"),
        (a_part("file", b"a", "f") + a_part("file", b"b", "f"), "two parts"),
        (a_part("purpose", b"x" * 5000), "4096 bytes"),
        (b"".join(a_part(f"f{each}", b"") for each in range(18)), "16 fields"),
        (a_part("x" * 9000, b""), "no multipart form"),
    ],
)
def test_what_is_no_form_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ApiError, match=text):
        read(content)


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data"])
def test_another_content_type_is_refused(kind: str) -> None:
    with pytest.raises(ApiError, match="multipart/form-data"):
        Form(kind)
