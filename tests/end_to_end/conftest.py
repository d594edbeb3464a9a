"""One platform for most of these tests: two ingresses, one former, one worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.ctl.demo import digits
from tests.end_to_end.platforms import Platform, running
from tests.models import graphs, zoo
from tests.models.folders import put_simulated, put_version

STORED_BYTES_MAX = 4 * 1024 * 1024
PADDING = """\
[padding]
axis = "sequence"
values = { ids = 0, mask = 0 }
edges = [4, 8, 16]
"""


@pytest.fixture(scope="package")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that the whole session serves."""
    folder = tmp_path_factory.mktemp("models")
    for datatype in graphs.DATATYPES:
        name = f"identity_{datatype.lower()}"
        put_version(folder, name, "1", graphs.identity(datatype))
    put_version(folder, "addsub", "1", graphs.addsub())
    put_version(folder, "double", "1", graphs.double())
    put_version(folder, "rowmean", "1", graphs.rowmean())
    put_version(folder, "lookup", "1", graphs.lookup(), "max_batch = 8\n")
    put_version(folder, "lookup32", "1", graphs.lookup(), "max_batch = 32\n")
    put_version(folder, "log", "1", graphs.log())
    put_version(folder, "perceptron", "1", graphs.perceptron())
    put_version(folder, "embedding", "1", graphs.embedding(), PADDING)
    put_version(folder, "scalar_param", "1", zoo.scalar_param())
    put_version(folder, "mixed", "1", zoo.mixed_datatypes())
    put_version(
        folder,
        "axis1",
        "1",
        zoo.axis1_batch(),
        "batch_axis = { x = 1, y = 0 }\n",
    )
    put_version(folder, "refused", "1", zoo.refused_unknown_op())
    put_simulated(folder, "tight", "1", alpha_ms=1, memory_left_rows=8)
    put_version(folder, "spread", "1", graphs.spread(100_000))
    put_version(folder, "moody", "1", graphs.raising(least=5))
    put_simulated(folder, "blocker", "1", alpha_ms=800)
    put_simulated(folder, "long", "1", alpha_ms=1500)
    put_simulated(folder, "paced", "1", alpha_ms=200, beta_ms=1)
    put_simulated(folder, "quick", "1", alpha_ms=20, beta_ms=0.1)
    put_simulated(folder, "lone", "1", alpha_ms=100, beta_ms=1, max_batch=1)
    digits.train(folder / "digits_mlp" / "1" / "model.onnx")
    return folder


@pytest.fixture(scope="package")
def payloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the payload store."""
    return tmp_path_factory.mktemp("payloads")


@pytest.fixture(scope="package")
def platform(
    models: Path, payloads: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    environment = {
        "HEADRACE_BUS__PAYLOAD_STORE": f"file://{payloads}",
        "HEADRACE_BUS__PAYLOAD_STORE_BYTES_MAX": str(STORED_BYTES_MAX),
        "HEADRACE_RUNS__BREAKER_US": "1500000",
    }
    folder = tmp_path_factory.mktemp("up")
    with running(models, folder, "--ingress", "2", environment=environment) as started:
        yield started
