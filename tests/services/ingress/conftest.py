"""One ingress and one stand-in for the pipeline for all that leave both as they are."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from headrace.domain import Datatype
from tests.services.ingress.models import a_version
from tests.services.ingress.pipeline import IngressProcess, Pipeline, until


@pytest.fixture(scope="package")
def pipeline(kafka: str) -> Iterator[Pipeline]:
    running = Pipeline(kafka, f"t{uuid4().hex[:10]}")
    running.start()
    for model in ("echo", "silent", "twice", "failing", "log"):
        running.announce(a_version(model=model))
    for datatype in Datatype:
        running.announce(
            a_version(("X", datatype, (-1, -1)), model=f"ident_{datatype.lower()}")
        )
    running.announce(
        a_version(
            ("A", Datatype.FP32, (-1, 2)),
            ("B", Datatype.BYTES, (-1, 1)),
            model="two",
        )
    )
    yield running
    running.stop()


@pytest.fixture(scope="package")
def ingress(pipeline: Pipeline) -> Iterator[IngressProcess]:
    with IngressProcess(
        pipeline.bus,
        LIMITS__HTTP_BODY_TIMEOUT_MS=700,
        LIMITS__HTTP_HEAD_TIMEOUT_MS=700,
        LIMITS__HTTP_BODY_BYTES_MAX=4 * 1024 * 1024,
        LIMITS__HTTP_LINGER_MS=1500,
    ) as running:
        until(lambda: httpx.get(f"{running.url}/v2/models/two/ready").is_success)
        yield running
