"""Requests come as they are asked for, from a seed, and in order."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import SetupError
from headrace.simulation import Stream
from headrace.simulation.workload import arrivals, gaps_of, kinds_of, merged

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.0319600,110,27
"""
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1}\n{"timestamp": 500, "input_length": 2}\n'
)


def instants(stream: Stream, seed: int = 1) -> list[int]:
    return [at_us for at_us, _ in arrivals(stream, 0, seed)]


@pytest.mark.parametrize(
    ("process", "cv2"), [("poisson", 1.0), ("gamma:4", 4.0), ("even", 0.0)]
)
def test_a_process_has_its_rate_and_its_variation(process: str, cv2: float) -> None:
    found = instants(Stream(rate=1000, end_s=60, process=process))

    gaps = np.diff(found)
    assert len(found) == pytest.approx(60_000, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(cv2, rel=0.05, abs=0.001)


def test_a_stream_begins_and_ends_when_it_is_told_to() -> None:
    found = instants(Stream(rate=100, start_s=2, end_s=5))

    assert 2_000_000 <= found[0] < found[-1] < 5_000_000


def test_the_same_seed_gives_the_same_requests_and_another_one_others() -> None:
    stream = Stream(rate=100, end_s=5, models=(0, 1, 2))

    assert list(arrivals(stream, 0, 7)) == list(arrivals(stream, 0, 7))
    assert list(arrivals(stream, 0, 7)) != list(arrivals(stream, 0, 8))


def test_streams_are_merged_in_order_and_keep_their_own_dice() -> None:
    one = Stream(rate=100, end_s=5, models=(0, 1))
    other = Stream(rate=50, end_s=5, tenant="b")
    both = list(merged([one, other], 3))

    assert all(before[0] <= after[0] for before, after in pairwise(both))
    assert [each for each in both if each[1] < 2] == list(merged([one], 3))


def test_models_and_shapes_are_asked_for_equally_often() -> None:
    stream = Stream(rate=1000, end_s=20, models=(3, 5), shapes=2)
    kinds = kinds_of([stream])
    counts = np.bincount([kind for _, kind in arrivals(stream, 0, 1)])

    assert [(kind.model, kind.shape) for kind in kinds] == [
        (3, 0),
        (3, 1),
        (5, 0),
        (5, 1),
    ]
    assert counts / counts.sum() == pytest.approx([0.25] * 4, abs=0.02)


def test_once_is_all_at_the_start() -> None:
    assert instants(Stream(rate=3, end_s=2, process="once")) == [0] * 6


@pytest.mark.parametrize(
    ("name", "text", "shape"),
    [("azure.csv", AZURE, [0.052, 1.0]), ("mooncake.jsonl", MOONCAKE, [0.5])],
)
def test_a_trace_keeps_its_shape_at_the_rate_asked_for(
    tmp_path: Path, name: str, text: str, shape: list[float]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    dice = np.random.default_rng(0)

    (gaps,) = islice(gaps_of(f"trace:{path}", 10_000, dice), 1)

    assert gaps.mean() == pytest.approx(10_000)
    assert gaps / gaps.sum() == pytest.approx(np.array(shape) / sum(shape))


@pytest.mark.parametrize(
    ("process", "text"),
    [
        ("weibull", "say poisson, even, gamma:CV2 or trace:FILE"),
        ("gamma:0", "say gamma:4 for bursts"),
        ("gamma:many", "say gamma:4 for bursts"),
        ("trace:nowhere.csv", "nowhere.csv cannot be read"),
    ],
)
def test_a_process_that_cannot_be_is_refused_with_the_way_out(
    process: str, text: str
) -> None:
    with pytest.raises(SetupError, match=text):
        next(gaps_of(process, 1.0, np.random.default_rng(0)))


def test_a_trace_of_one_instant_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("\n".join(AZURE.splitlines()[:2]))

    with pytest.raises(SetupError, match="fewer than two instants"):
        next(gaps_of(f"trace:{path}", 1.0, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "TIMESTAMP\nnever\n"),
        ("t.csv", "TIMESTAMP\n\n"),
        ("t.csv", "TIMESTAMP\n\0\n"),
        ("t.jsonl", "no json\n"),
        ("t.jsonl", "[1]\n"),
        ("t.jsonl", '{"timestamp": null}\n'),
        ("t.jsonl", '{"timestamp": "nan"}\n{"timestamp": 1}\n'),
        ("t.jsonl", '{"at": 1}\n'),
    ],
)
def test_what_is_no_trace_is_refused_by_its_name(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(SetupError, match=rf"trace {path}"):
        next(gaps_of(f"trace:{path}", 1.0, np.random.default_rng(0)))
