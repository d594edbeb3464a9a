"""A platform of its own for a load test, and what can be seen of it from outside."""

from __future__ import annotations

import os
import select
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from headrace.embedded import TiedProcess
from headrace.errors import SetupError
from loadtest.scenario import Platform
from services.ctl.running import Document

__all__ = ["Running", "started"]

_READY_WITHIN_S = 120.0
_STOPS_WITHIN_S = 25.0
_LAST_LINES = 5

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


class Running:
    """What ``headrace up`` started."""

    def __init__(self, document: Document, data: Path, output: int) -> None:
        self.document = document
        self._data = data
        self._output = output

    @property
    def pids(self) -> dict[str, list[int]]:
        return {service: pids for service, pids in self.document.pids.items() if pids}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        pairs = (url.removeprefix("http://").split(":") for url in self.document.http)
        return [(host, int(port)) for host, port in pairs]

    def restarts(self) -> int:
        """How many processes were restarted since the last call."""
        ready, _, _ = select.select([self._output], [], [], 0)
        return os.read(self._output, 65536).count(b"\n") if ready else 0

    def log_bytes(self) -> dict[str, int]:
        """Bytes in the log by kind of topic, all partitions."""
        found: dict[str, int] = {}
        for segment in self._data.glob("kafka/**/*-*/*.log"):
            _, _, rest = segment.parent.name.partition(".")
            kind, _, _ = rest.partition(".")
            kind = kind.rpartition("-")[0] or kind
            found[kind] = found.get(kind, 0) + segment.stat().st_size
        return found

    def samples(self, service: str) -> Samples:
        """The metrics of all processes of a service, added up."""
        total: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        urls = self.document.admin.get(service, self.document.http)
        for url in urls:
            text = httpx.get(f"{url}/metrics", timeout=10).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    key = sample.name, tuple(sorted(sample.labels.items()))
                    total[key] = total.get(key, 0.0) + sample.value
        return total


@contextmanager
def started(platform: Platform, models: Path) -> Iterator[Running]:
    """A platform on free ports, which leaves nothing behind.

    Raises SetupError, with the end of its log, if it does not get ready.
    """
    data = Path(tempfile.mkdtemp(prefix="headrace-loadtest-"))
    log = data / "up.log"
    command = (
        *(sys.executable, "-m", "services.ctl", "up", "--json", "--data", data),
        *("--models", models, "--http-port", "0", "--kafka-port", "0"),
        *("--ingress", str(platform.ingress), "--formers", str(platform.formers)),
        *("--workers", str(platform.workers), "--lanes", str(platform.lanes)),
        *(("--fused",) if platform.fused else ()),
    )
    reader, writer = os.pipe()
    with log.open("wb") as lines:
        process = TiedProcess(
            command,
            output=writer,
            errors=lines,
            environment={**os.environ, **platform.environment},
        )
    os.close(writer)
    try:
        in_time, _, _ = select.select([reader], [], [], _READY_WITHIN_S)
        line = os.read(reader, 65536) if in_time else b""
        if not line:
            last = log.read_text("utf-8", "replace").splitlines()[-_LAST_LINES:]
            raise SetupError("\n".join(["the platform did not get ready:", *last]))
        yield Running(msgspec.json.decode(line, type=Document), data, reader)
    finally:
        process.stop(_STOPS_WITHIN_S)
        os.close(reader)
        shutil.rmtree(data, ignore_errors=True)
