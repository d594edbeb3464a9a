"""One platform for all that is tried on it, one thing after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.stand import Stand, standing

SEED = 20
"""Always the same: whatever an unlucky one finds is `make chaos`' to find."""

BUSY_GRACE_US = 10_000_000
"""`make chaos` allows a quarter of a second after a time limit; here the machine may be
anybody's."""


@pytest.fixture(scope="package")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("chaos"), SEED) as started:
        yield started
