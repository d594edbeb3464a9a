from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.gpu_worker.pool import Pool, a_pool


@pytest.fixture
def pool(kafka: str, prefix: str, tmp_path: Path) -> Iterator[Pool]:
    with a_pool(kafka, prefix, tmp_path) as made:
        yield made
