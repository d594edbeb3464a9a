"""What another process's ``/metrics`` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Sample", "samples_of"]


class Sample(NamedTuple):
    """``name`` has its suffix: ``_total``, ``_bucket``, ``_sum``, ``_count``."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples_of(text: str) -> Iterator[Sample]:
    """Raises ValueError where the text is no answer of ``/metrics``."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            yield Sample(one.name, one.labels, one.value)
