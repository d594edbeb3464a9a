"""Triton's statistics, as this process can know them."""

from services.ingress.statistics import VersionStatistics

TIMES_US = (1, 20, 3)


def test_a_batch_whose_answers_came_in_two_records_ran_once() -> None:
    version = VersionStatistics()
    for batch in ("a", "a", "b"):
        version.ran(batch, 4, TIMES_US, 1_900_000_000_000)
    told = version.as_json("m", "1")
    assert (told["execution_count"], told["last_inference"]) == (2, 1_900_000_000_000)
    assert told["batch_stats"] == [
        {
            "batch_size": 4,
            "compute_input": {"count": 2, "ns": 2_000},
            "compute_infer": {"count": 2, "ns": 40_000},
            "compute_output": {"count": 2, "ns": 6_000},
        }
    ]


def test_a_request_waited_for_what_it_did_not_compute() -> None:
    version = VersionStatistics()
    version.succeeded([100, 10], 4, TIMES_US)
    told = version.as_json("m", "1")
    assert told["inference_count"] == 4
    stats = told["inference_stats"]
    assert isinstance(stats, dict)
    assert stats["success"] == {"count": 2, "ns": 110_000}
    assert stats["queue"] == {"count": 2, "ns": 76_000}
    assert stats["compute_infer"] == {"count": 2, "ns": 40_000}
