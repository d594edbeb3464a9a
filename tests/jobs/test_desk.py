from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Reason
from headrace.jobs.desk import LOST, Desk, is_end
from headrace.jobs.outputs import RowError
from headrace.wire.jobs import RowRange

ROWS = 12


def ended(desk: Desk[str]) -> list[tuple[int, int, int, str]]:
    """First, rows, skip and answer (a reason for an error) of what has ended."""
    return [
        (first, rows, skip, answer.reason if isinstance(answer, RowError) else answer)
        for first, rows, skip, answer in desk.take()
    ]


def test_answers_come_out_in_the_order_of_the_rows() -> None:
    desk: Desk[str] = Desk()
    for first in (0, 3, 6):
        assert desk.planned(RowRange(first, 3))

    assert desk.answered(RowRange(3, 3), "b")
    assert ended(desk) == []
    assert desk.answered(RowRange(0, 3), "a")

    assert ended(desk) == [(0, 3, 0, "a"), (3, 3, 0, "b")]
    assert desk.frontier == 6
    assert not desk.answered(RowRange(3, 3), "again")
    assert desk.missing() == [RowRange(6, 3)]


def test_a_range_that_failed_is_sent_row_by_row() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 3))
    desk.buried(RowRange(0, 3), Reason.POISON, "bad", b"request")
    assert desk.missing() == [RowRange(0, 3)]
    assert desk.wants_singles

    singles = []
    while (single := desk.next_single()) is not None:
        singles.append((single.row, single.place, single.request))
    assert singles == [(row, row, b"request") for row in range(3)]

    desk.answered(RowRange(0, 1), "a")
    desk.buried(RowRange(1, 1), Reason.POISON, "bad", b"request")
    desk.answered(RowRange(2, 1), "c")
    assert ended(desk) == [(0, 1, 0, "a"), (1, 1, 0, "poison"), (2, 1, 0, "c")]
    assert desk.failed == 1


def test_a_late_result_of_a_range_counts_for_the_rows_without_one() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 4))
    desk.answered(RowRange(0, 1), "single")
    desk.answered(RowRange(2, 1), "single")
    assert ended(desk) == [(0, 1, 0, "single")]

    desk.answered(RowRange(0, 4), "late")

    assert ended(desk) == [(1, 3, 1, "late")]
    assert desk.missing() == []


def test_a_late_result_wins_over_a_dead_letter() -> None:
    """D9 ◆: its worker was only slow, and the letter said that it was lost."""
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 4))
    desk.answered(RowRange(0, 1), "a")
    desk.buried(RowRange(2, 1), Reason.CRASH, "lost", b"request")
    desk.buried(RowRange(3, 1), Reason.CRASH, "lost", b"request")
    assert ended(desk) == [(0, 1, 0, "a")]

    assert desk.answered(RowRange(2, 1), "late")
    assert not desk.answered(RowRange(2, 1), "again")
    desk.answered(RowRange(1, 1), "b")

    assert ended(desk) == [(1, 1, 0, "b"), (2, 1, 0, "late"), (3, 1, 0, "crash")]
    assert desk.failed == 1
    assert not desk.answered(RowRange(3, 1), "too late")
    assert ended(desk) == []


def test_what_ends_all_rows_alike_is_not_tried_one_by_one() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 2))
    desk.buried(RowRange(0, 2), Reason.EXPIRED, "over", b"request")
    assert ended(desk) == [(0, 2, 0, "expired")]
    assert desk.failed == 2


def test_rows_that_cannot_be_in_time_have_expired_like_those_after_them() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 2))
    desk.buried(RowRange(0, 2), Reason.DEADLINE_UNATTAINABLE, "late", b"request")
    assert ended(desk) == [(0, 2, 0, "expired")]
    assert desk.expired == 2


def test_a_record_that_expired_before_its_job_is_sent_again() -> None:
    """One that is not bulk may wait for ten minutes, the job for as long as it has."""
    for reason in (Reason.EXPIRED, Reason.DEADLINE_UNATTAINABLE):
        ends = [is_end(reason, left_us) for left_us in (None, 61_000_000, 1, -1)]
        assert ends == [False, False, True, True]
    assert is_end(Reason.POISON, None)
    assert is_end(Reason.CANCELLED, None)
    assert not is_end(Reason.OVERLOADED, -1)


def test_a_broken_row_ends_where_it_stands() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 1))
    desk.broken(1, "no number")
    desk.planned(RowRange(2, 1))
    desk.answered(RowRange(2, 1), "c")
    desk.answered(RowRange(0, 1), "a")
    assert ended(desk) == [(0, 1, 0, "a"), (1, 1, 0, "invalid"), (2, 1, 0, "c")]


def test_what_stays_without_an_outcome_is_lost_after_three_rounds() -> None:
    desk: Desk[str] = Desk()
    desk.planned(RowRange(0, 2))
    assert [desk.missing() for _ in range(3)] == [[RowRange(0, 2)]] * 3
    assert desk.missing() == []
    assert ended(desk) == [(0, 2, 0, LOST)]


def test_too_many_answers_that_wait_hold_up_what_is_new() -> None:
    desk: Desk[str] = Desk(ahead_max=2)
    for first in range(4):
        desk.planned(RowRange(first, 1))
    desk.answered(RowRange(1, 1), "b")
    assert not desk.is_held_up
    desk.answered(RowRange(2, 1), "c")
    assert desk.is_held_up
    desk.answered(RowRange(0, 1), "a")
    assert len(ended(desk)) == 3
    assert not desk.is_held_up


class Log:
    """What survives a publisher: records, answers, and how far it told to be."""

    def __init__(self) -> None:
        self.waiting: list[RowRange] = []
        self.answers: list[tuple[RowRange, Reason | None]] = []
        self.published = 0
        self.appended = 0
        self.runs: dict[RowRange, int] = {}


class Publisher:
    """A publisher over a log that loses records: a rehearsal of ``Publishing``."""

    def __init__(self, log: Log, rows_max: int) -> None:
        self.log = log
        self.rows_max = rows_max
        self.at = log.published
        self.read = 0
        known = [each for each in log.waiting if each.first >= log.published]
        self.desk: Desk[int] = Desk(log.published, known)
        self.written: list[tuple[int, str]] = []
        while self.read < len(log.answers):
            self.hear(is_old=True)

    def publish(self, *, is_lost: bool = False) -> None:
        single = self.desk.next_single()
        if single is not None:
            self._append(RowRange(single.row, 1), is_lost=is_lost)
        elif self.at < ROWS:
            # Records end at the same rows whoever makes them.
            end = min((self.at // self.rows_max + 1) * self.rows_max, ROWS)
            rows = RowRange(self.at, end - self.at)
            self.at = end
            if self.desk.planned(rows):
                self._append(rows, is_lost=is_lost)

    def tell(self) -> None:
        self.log.published = self.desk.cursor

    def hear(self, *, is_old: bool = False) -> None:
        if self.read < len(self.log.answers):
            rows, reason = self.log.answers[self.read]
            self.read += 1
            if reason is None:
                self.desk.answered(rows, self.read)
            else:
                self.desk.buried(rows, reason, "", None if is_old else b"r")
        for first, rows_, _, answer in self.desk.take():
            told = answer.reason if isinstance(answer, RowError) else "ok"
            self.written += [(row, told) for row in range(first, first + rows_)]

    def settle(self) -> None:
        """The log is through with everything, and every answer was read."""
        while self.read < len(self.log.answers):
            self.hear()
        if not self.desk.wants_singles and self.at >= ROWS:
            for gap in self.desk.missing():
                self._append(gap, is_lost=False)
        self.hear()

    @property
    def is_done(self) -> bool:
        return self.at >= ROWS and self.desk.frontier >= ROWS

    def _append(self, rows: RowRange, *, is_lost: bool) -> None:
        if not is_lost:
            self.log.waiting.append(rows)


def run_one(log: Log, bad: set[int]) -> None:
    """A worker runs the oldest record: one with a bad row fails as a whole."""
    if log.waiting:
        rows = log.waiting.pop(0)
        log.runs[rows] = log.runs.get(rows, 0) + 1
        is_bad = any(row in bad for row in range(rows.first, rows.end))
        log.answers.append((rows, Reason.POISON if is_bad else None))


def after(step: str, log: Log, publisher: Publisher, bad: set[int]) -> Publisher:
    match step:
        case "send":
            publisher.publish()
        case "lose":
            publisher.publish(is_lost=True)
        case "run":
            run_one(log, bad)
        case "hear":
            publisher.hear()
        case "tell":
            publisher.tell()
        case "kill":
            return Publisher(log, publisher.rows_max)
    return publisher


@given(
    st.lists(
        st.sampled_from(["send", "lose", "run", "hear", "tell", "kill"]), max_size=50
    ),
    st.sets(st.integers(0, ROWS - 1), max_size=3),
    st.integers(1, 5),
)
def test_each_row_is_written_once_however_often_its_publisher_is_killed(
    steps: list[str], bad: set[int], rows_max: int
) -> None:
    log = Log()
    publisher = Publisher(log, rows_max)
    for step in steps:
        publisher = after(step, log, publisher, bad)
    for _ in range(200):
        if publisher.is_done:
            break
        publisher.publish()
        run_one(log, bad)
        if not log.waiting:
            publisher.settle()
        publisher.hear()

    assert publisher.written == [
        (row, "poison" if row in bad else "ok") for row in range(ROWS)
    ]


@given(st.lists(st.sampled_from(["send", "run", "tell", "kill"]), max_size=60))
def test_a_publisher_that_is_killed_repeats_nothing_that_the_log_has(
    steps: list[str],
) -> None:
    log = Log()
    publisher = Publisher(log, 2)
    for step in steps:
        publisher = after(step, log, publisher, set())
    while log.waiting:
        run_one(log, set())
    assert set(log.runs.values()) <= {1}
