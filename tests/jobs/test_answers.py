from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs.answers import Answers

ROWS = 12
ranges = st.tuples(st.integers(0, ROWS - 1), st.integers(1, 5))


@given(st.lists(ranges | st.none(), max_size=20))
def test_each_row_is_taken_once_in_order_however_answers_overlap(
    steps: list[tuple[int, int] | None],
) -> None:
    """None: what can be taken is taken."""
    answers: Answers[int] = Answers()
    answered: set[int] = set()
    taken: list[int] = []
    for number, step in enumerate([*steps, None]):
        if step is not None:
            first, rows = step
            answered.update(range(first, first + rows))
            answers.add(first, rows, first)
            continue
        for part in answers.take():
            assert part.first == part.answer + part.skip, number
            taken += range(part.first, part.end)

    prefix = next(row for row in range(ROWS + 6) if row not in answered)
    assert taken == list(range(prefix))
    assert answers.frontier == prefix
    missing = [row for first, end in answers.gaps(ROWS) for row in range(first, end)]
    assert missing == [row for row in range(ROWS) if row not in answered]
