"""What a test starts is ended with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.services.batch_former.hands import Former, Worker
from tests.services.batch_former.pool import Pool


@pytest.fixture
def pool(kafka: str, prefix: str) -> Pool:
    """One lane, no services."""
    return Pool(kafka, prefix)


@pytest.fixture
def start_former() -> Iterator[Callable[..., Former]]:
    started: list[Former] = []

    def start(pool: Pool, slot: int = 0, **settings: str) -> Former:
        started.append(Former(pool, slot, **settings))
        return started[-1]

    yield start
    for former in started:
        former.kill()
        # Shown when the test fails.
        for event in former.events:
            print(event)  # noqa: T201 - a test's own report


@pytest.fixture
def start_worker() -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(pool: Pool, slot: int = 0, **facts: str) -> Worker:
        started.append(Worker(pool, slot, **facts))
        return started[-1]

    yield start
    for worker in started:
        worker.stopped.set()
