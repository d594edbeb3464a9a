from __future__ import annotations

import io

from hypothesis import example, given
from hypothesis import strategies as st

from services.ingress.batches.reading import Lines, read_lines


class InPieces(io.BytesIO):
    """Gives at most so many bytes at a time, as a store does."""

    def __init__(self, content: bytes, most: int) -> None:
        super().__init__(content)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        del size
        return super().read(self._most)


CONTENT = st.lists(st.sampled_from([b"", b" ", b"a", b"bcd", b"\r", b"efghij"]))


@example(texts=[b"efghij"], piece=4, most=5, is_ended=True)
@given(CONTENT, st.integers(1, 7), st.integers(1, 6), st.booleans())
def test_lines_are_those_of_the_file_however_it_is_read(
    texts: list[bytes],
    piece: int,
    most: int,
    is_ended: bool,  # noqa: FBT001 - from Hypothesis
) -> None:
    content = b"\n".join(texts) + (b"\n" if is_ended else b"")
    expected = [
        (number, text if len(text) <= most else None)
        for number, text in enumerate(content.split(b"\n"), 1)
        if text.strip()
    ]

    found = list(read_lines(InPieces(content, piece), most))

    # What is only blanks, but too long for a line, is a line nobody can read.
    told = [(line.number, line.data) for line in found if line.data is not None]
    assert told == [each for each in expected if each[1] is not None]
    assert [line.item for line in found] == list(range(len(found)))


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    (line,) = read_lines(io.BytesIO(b"\xef\xbb\xbf{}\n"), 10)
    assert line.data == b"{}"


@given(st.integers(0, 12), st.integers(0, 14))
def test_chunks_begin_where_they_are_asked_to(count: int, start: int) -> None:
    content = b"\n\n".join(b"%d" % each for each in range(count))
    lines = Lines(lambda: io.BytesIO(content), 100)

    found = [line for chunk in lines.chunks(start) for line in chunk.lines]

    assert [line.data for line in found] == [b"%d" % at for at in range(start, count)]
    assert [line.number for line in found] == [2 * at + 1 for at in range(start, count)]
