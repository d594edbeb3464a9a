"""What a slot tells of its runs, and when it has something to tell."""

from __future__ import annotations

from services.gpu_worker.runs import SHAPES_KEPT_MAX, TOLD_AGAIN_US, RunMemory


def ran(memory: RunMemory, shape: str, rows: int, run_us: int, times: int = 5) -> None:
    for _ in range(times):
        memory.add(shape, rows, run_us)


def test_what_ran_often_enough_is_told_once() -> None:
    memory = RunMemory()
    ran(memory, "x", 8, 700, times=4)
    assert memory.news(0) is None

    ran(memory, "x", 8, 701, times=1)

    assert memory.news(0) == {"x": ((8, 700),) * 4 + ((8, 701),)}
    ran(memory, "x", 8, 705)
    assert memory.news(2 * TOLD_AGAIN_US) is None


def test_a_change_is_told_with_all_that_is_known_half_a_minute_later() -> None:
    memory = RunMemory()
    ran(memory, "x", 8, 700)
    ran(memory, "x", 1, 100)
    memory.news(0)

    ran(memory, "x", 8, 1400)

    assert memory.news(TOLD_AGAIN_US - 1) is None
    assert memory.news(TOLD_AGAIN_US) == {"x": ((1, 100),) * 5 + ((8, 1400),) * 5}


def test_a_new_size_and_a_new_shape_are_news() -> None:
    memory = RunMemory()
    ran(memory, "x", 8, 700)
    memory.news(0)

    ran(memory, "x", 2, 300)
    assert memory.news(TOLD_AGAIN_US) is not None
    ran(memory, "y", 2, 300)
    assert memory.news(2 * TOLD_AGAIN_US) is not None


def test_of_many_shapes_those_are_remembered_that_ran_last() -> None:
    memory = RunMemory()
    for number in range(SHAPES_KEPT_MAX):
        ran(memory, f"s{number}", 1, 100)
    ran(memory, "s0", 1, 100)
    ran(memory, "new", 1, 100)

    told = memory.news(0)

    assert told is not None
    assert set(told) == {"new", "s0", *(f"s{n}" for n in range(2, SHAPES_KEPT_MAX))}
