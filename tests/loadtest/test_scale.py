"""What is said of costs that grow with something."""

from __future__ import annotations

import msgspec

from loadtest.bench import Result
from loadtest.figures import figures_of, timeline_of
from loadtest.scale import AXES, Point, faster_than_linear, points_of
from tests.loadtest.builders import Ended, a_host, the_records

A_POINT = Point(
    amount=1,
    answered=1000.0,
    p50_ms=5.0,
    p99_ms=9.0,
    mean_batch=16.0,
    cpu_us={"ingress": 40.0, "batch_former": 20.0, "gpu_worker": 10.0, "kafka": 30.0},
    memory_mb={},
    lost=0,
    foreign_cores=0.0,
)


def a_point(amount: int, former_us: float) -> Point:
    costs = A_POINT.cpu_us | {"batch_former": former_us}
    return msgspec.structs.replace(A_POINT, amount=amount, cpu_us=costs)


def test_a_cost_may_grow_as_what_it_depends_on() -> None:
    points = [a_point(10, 20), a_point(100, 200), a_point(1000, 210)]
    assert faster_than_linear(points) == []


def test_a_cost_that_grows_faster_is_named() -> None:
    points = [a_point(1, 20), a_point(2, 20), a_point(4, 120)]
    assert faster_than_linear(points) == ["batch_former from 2 to 4: 20 to 120 µs"]


def test_every_point_of_an_axis_has_its_amount() -> None:
    for axis in AXES.values():
        for stage in axis.stages:
            runs = [run.name for run in stage.scenario.runs]
            labels = [platform.label for platform in stage.scenario.platforms]
            results = [a_result(run, label) for run in runs for label in labels]
            amounts = [point.amount for point in points_of(stage, results)]
            assert amounts == list(stage.amounts.values())


def test_a_point_is_of_all_streams_of_a_run() -> None:
    stage = AXES["models"].stages[0]
    point = next(points_of(stage, [a_result("asked", "", took_ms=(10, 30))]))
    assert point.answered == 2.0
    assert point.p50_ms == 30.0
    assert point.cost_us == 70.0


def a_result(run: str, platform: str, took_ms: tuple[int, ...] = (10,)) -> Result:
    """One request in each stream, in a second."""
    records = [the_records([Ended(0, each)]) for each in took_ms]
    streams = [figures_of(each, "m", sent_s=1, slo_ms=100) for each in records]
    timeline = timeline_of(records[0], sent_s=1, slo_ms=100)
    return Result(run, platform, 0, streams, a_host(), {}, timeline, 0.0)
