"""One platform for all that is tried on it, one thing after another."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.chaos.stand import Stand, standing


@pytest.fixture(scope="session")
def seed() -> int:
    """Another one in each run; a failure prints it for `make chaos ARGS="--seed N"`."""
    drawn = secrets.randbelow(1 << 32)
    print(f"seed {drawn}")
    return drawn


@pytest.fixture(scope="session")
def stand(seed: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("chaos"), seed) as started:
        yield started
