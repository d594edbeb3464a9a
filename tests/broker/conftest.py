from collections.abc import Iterator

import pytest

from tests.broker.bench import Bench, KafkaBench, MemoryBench


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bench(request: pytest.FixtureRequest, prefix: str) -> Iterator[Bench]:
    """The broker in memory, and the real one."""
    made: Bench
    if request.param == "memory":
        made = MemoryBench(prefix)
    else:
        made = KafkaBench(request.getfixturevalue("kafka"), prefix)
    yield made
    made.close()
