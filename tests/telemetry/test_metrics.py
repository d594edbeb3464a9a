import typing

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from headrace.telemetry import (
    FormerMetrics,
    IngressMetrics,
    LogEvent,
    MetricsRegistry,
    ProcessMetrics,
    WorkerMetrics,
)

UNITS = {"seconds", "rows", "requests", "ratio"}
GROUPS = [ProcessMetrics, IngressMetrics, FormerMetrics, WorkerMetrics]


def families(registry: CollectorRegistry) -> list:
    return [one for one in registry.collect() if one.name.startswith("headrace_")]


def test_every_metric_says_what_it_counts_in_which_unit() -> None:
    registry = MetricsRegistry()
    for group in GROUPS:
        group(registry)
    found = families(registry.collectors)
    assert len(found) > 20
    for one in found:
        assert " " in one.documentation, one.name
        if one.type == "histogram":
            assert one.name.rpartition("_")[2] in UNITS, one.name


def test_a_scrape_is_text_that_prometheus_parses() -> None:
    registry = MetricsRegistry()
    metrics = IngressMetrics(registry)
    version = "digits", "1", "standard"
    metrics.requests.count(version, 200).value += 3
    metrics.requests.latencies(version).observe([10_000, 10_001, 20_000])

    text = registry.render().decode()
    samples = {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    labels = {"model": "digits", "version": "1", "priority": "standard"}
    counted = tuple(sorted({**labels, "status": "200", "reason": ""}.items()))
    assert samples["headrace_requests_total", counted] == 3
    latency = "headrace_request_latency_seconds"
    for bound, below in {"0.005": 0, "0.01": 1, "0.025": 3, "+Inf": 3}.items():
        under = tuple(sorted({**labels, "le": bound}.items()))
        assert samples[f"{latency}_bucket", under] == below
    assert samples[f"{latency}_count", tuple(sorted(labels.items()))] == 3
    assert samples[f"{latency}_sum", tuple(sorted(labels.items()))] == 0.040001
    assert any(name.startswith("process_") for name, _ in samples)


def test_two_processes_worth_of_metrics_stand_side_by_side() -> None:
    first, second = MetricsRegistry(), MetricsRegistry()
    IngressMetrics(first).lanes_heard.set(1)
    IngressMetrics(second).lanes_heard.set(2)
    assert b"headrace_lanes_heard 1.0" in first.render()


@pytest.mark.parametrize("event", typing.get_args(LogEvent))
def test_an_event_is_named_noun_verb(event: str) -> None:
    noun, dot, verb = event.partition(".")
    assert noun
    assert dot
    assert verb
    assert event == event.lower()


def test_the_list_of_events_is_sorted_and_without_twins() -> None:
    events = typing.get_args(LogEvent)
    assert list(events) == sorted(set(events))
