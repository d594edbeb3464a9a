"""One Apache Kafka for the whole run; tests keep apart by the names of their topics."""

import os
from collections.abc import Iterator
from uuid import uuid4

import hypothesis
import pytest

from headrace.embedded import EmbeddedKafka, KafkaSettings

# The same examples in every run, so that nobody's change fails on the next one's luck;
# --hypothesis-profile=default looks for new ones.
# No example has a time limit, nor has the making of them: a machine that stands still
# for a moment is no fault of what is tried.
hypothesis.settings.register_profile(
    "same",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("same")


STARTS_WITHIN_S = 240.0
"""A broker, among the processes of others; alone, 3 s."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The bootstrap address of a running broker, started when first asked for."""
    elsewhere = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if elsewhere:
        yield elsewhere
        return
    settings = KafkaSettings(start_timeout_s=STARTS_WITHIN_S)
    with EmbeddedKafka(settings, say=print) as running:
        yield running.bootstrap_servers


@pytest.fixture
def prefix() -> str:
    """The beginning of this test's topic and group names, unlike all others."""
    return f"t{uuid4().hex[:10]}."
