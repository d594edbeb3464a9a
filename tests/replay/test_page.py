"""A replay as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SetupError
from headrace.replay import Comparison, Gate, JoinCounts, Report, judged
from headrace.replay.page import write_page
from tests.replay.builders import SERVED, labels, recorded, replayed, scores


def a_report(comparison: Comparison) -> Report:
    differences = comparison.differences()
    verdict, against = judged(differences, Gate())
    return Report(
        verdict=verdict,
        against=against,
        compared=differences.compared,
        model="digits",
        into="digits/2",
        from_="-1h",
        to="now",
        at="2030-01-31T12:00:00Z",
        elapsed_s=1.5,
        passed_over=JoinCounts(),
        warnings=["<retention> has cut the range"],
        gate=Gate(),
        differences=differences,
    )


def a_comparison() -> Comparison:
    comparison = Comparison(SERVED)
    then = (labels(3, 5), scores([0.5, 0.5], [1, 0]))
    comparison.take(replayed(recorded(*then), labels(3, 6), then[1]))
    comparison.take(replayed(recorded(*then, offset=8), *then))
    return comparison


def test_a_page_has_the_verdict_its_figures_and_its_plots(tmp_path: Path) -> None:
    comparison = a_comparison()
    page = tmp_path / "page.html"

    write_page(page, a_report(comparison), comparison.latencies_us)

    text = page.read_text()
    assert '<h2 class="fail">fail</h2>' in text
    assert "&lt;retention&gt; has cut the range" in text
    assert "<td>label</td><td>4</td><td>75.00%</td>" in text
    assert "headrace.requests.digits/2/7, 1</td><td>1</td><td>5</td><td>6</td>" in text
    assert text.count("<svg") == 1


def test_a_page_without_anything_compared_is_written_too(tmp_path: Path) -> None:
    comparison = Comparison(SERVED)
    picture = tmp_path / "page.png"

    write_page(picture, a_report(comparison), comparison.latencies_us)

    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SetupError, match="cannot be written"):
        write_page(
            tmp_path / "no" / "page.html", a_report(comparison), comparison.latencies_us
        )
