"""What `headrace topics` makes of batch formers' metrics."""

from __future__ import annotations

import pytest

from headrace.broker import Depth, TopicPartition
from headrace.telemetry import FormerMetrics, MetricsRegistry, samples_of
from headrace.wire import Topics
from services.ctl.released import Released, released, scraped
from services.ctl.topics import _show, queues


def a_former(*, batches: int, rows: int) -> str:
    """Each batch of bulk and one realtime request that waits 20 ms and has 40 to
    spare."""
    registry = MetricsRegistry()
    metrics = FormerMetrics(registry)
    head, rider = ("m", "1", "realtime"), ("m", "2", "bulk")
    for _ in range(batches):
        metrics.batches.labels(*head, "full").inc()
        metrics.batch_rows.of(*head).observe([rows])
        metrics.batch_fill.of(*head).observe([500])
        metrics.run_overrun.of(*head).observe([1100])
        metrics.queue_wait.of(*head).observe([20_000])
        metrics.slack.of(*head).observe([40_000])
        metrics.queue_wait.of(*rider).observe([3_000_000])
    metrics.refused.labels("m", "bulk", "expired").inc(3)
    return registry.render().decode()


def both() -> dict[tuple[str, str], Released]:
    texts = a_former(batches=100, rows=10), a_former(batches=300, rows=30)
    return released([one for text in texts for one in samples_of(text)])


def test_formers_and_versions_are_added_up_by_model_and_priority() -> None:
    told = both()

    assert told.keys() == {("m", "realtime"), ("m", "bulk")}
    realtime, bulk = told["m", "realtime"], told["m", "bulk"]
    assert (realtime.batches, realtime.left) == (400, {"full": 400})
    assert (realtime.rows, realtime.fill) == (25.0, 0.5)
    assert realtime.overrun == pytest.approx(1.1)
    # Within their buckets: 10 to 25 ms, and 25 to 50.
    assert realtime.wait_p50_ms == pytest.approx(17.5)
    assert realtime.wait_p99_ms == pytest.approx(24.85)
    assert realtime.slack_p1_ms == pytest.approx(25.25)
    assert (bulk.batches, bulk.rows, bulk.slack_p1_ms) == (0, None, None)
    assert bulk.wait_p50_ms == pytest.approx(3750)
    assert bulk.refused == {"expired": 6}


def test_what_left_stands_beside_what_waits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = Topics()
    places = {
        TopicPartition(names.requests("m"), partition): Depth(0, 1, 1)
        for partition in (0, 3, 4)
    }

    rows = queues(names, places, [], both())
    _show(rows)

    told = [row.released for row in rows]
    assert [one and one.batches for one in told] == [400, 0, 400]
    out = capsys.readouterr().out
    # Once for all lanes.
    assert out.count("25.0") == 1
    for word in ("50%", "17.5", "1.10", "m realtime left: full 400", "expired 6"):
        assert word in out
    assert "…" not in out


def test_a_former_that_does_not_answer_is_named() -> None:
    found, silent = scraped(["http://127.0.0.1:1"])

    assert found == []
    (sentence,) = silent
    assert sentence.startswith("The batch former at http://127.0.0.1:1 shows no metr")
