"""One ingress and one stand-in for the pipeline for all that leave both as they are."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import httpx
import pytest

from headrace.domain import Datatype
from tests.services.ingress.models import a_version
from tests.services.ingress.pipeline import (
    CLIENT_WAITS_MS,
    HASTE_MS,
    IngressProcess,
    Pipeline,
    until,
)


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
    """It waits longer for the parts of a request than any client here for its answer,
    so that a slow machine ends nothing, and nothing but an end is taken for one."""
    with an_ingress(pipeline, slot=0, wait_ms=10 * CLIENT_WAITS_MS) as running:
        yield running


@pytest.fixture(scope="package")
def hasty(pipeline: Pipeline) -> Iterator[IngressProcess]:
    """It soon ends what does not come, nor end."""
    with an_ingress(pipeline, slot=1, wait_ms=HASTE_MS) as running:
        yield running


@contextmanager
def an_ingress(
    pipeline: Pipeline, *, slot: int, wait_ms: int
) -> Iterator[IngressProcess]:
    with IngressProcess(
        pipeline.bus,
        slot,
        LIMITS__HTTP_BODY_TIMEOUT_MS=wait_ms,
        LIMITS__HTTP_HEAD_TIMEOUT_MS=wait_ms,
        LIMITS__HTTP_LINGER_MS=2 * wait_ms,
        LIMITS__HTTP_BODY_BYTES_MAX=4 * 1024 * 1024,
    ) as running:
        until(lambda: httpx.get(f"{running.url}/v2/models/two/ready").is_success)
        yield running
