"""Readiness is what the log says of the process, not what it was once."""

import json
import os
import signal

import httpx
import pytest

from headrace.embedded import EmbeddedKafka, KafkaSettings
from headrace.lifecycle import BusSettings
from tests.freezing import freeze
from tests.services.ingress.pipeline import IngressProcess, until
from tests.services.ingress.test_raw_sockets import Connection

pytestmark = pytest.mark.kafka


def test_an_ingress_whose_log_is_dead_is_not_ready_but_alive_and_recovers() -> None:
    with EmbeddedKafka(KafkaSettings(), say=print) as kafka:
        bus = BusSettings(bootstrap_servers=kafka.bootstrap_servers)
        with IngressProcess(bus) as ingress:

            def status(path: str) -> int:
                return httpx.get(f"{ingress.url}{path}").status_code

            freeze(kafka.pid)
            try:
                assert status("/v2/health/ready") == 200
                until(lambda: status("/v2/health/ready") == 503)
                for path in ("/readyz", "/v2/health/ready"):
                    client = Connection(ingress.address)
                    client.send(f"GET {path} HTTP/1.1\r\nhost: h\r\n\r\n".encode())
                    answer = client.read()
                    client.close()
                    assert answer.status == 503
                    assert answer.headers["headrace-reason"] == "log_unavailable"
                    assert b"through the log for 3 s" in answer.body
                assert json.loads(answer.body)["ready"] is False
                assert (status("/livez"), status("/v2/health/live")) == (200, 200)
            finally:
                os.kill(kafka.pid, signal.SIGCONT)
            until(lambda: status("/v2/health/ready") == 200)
            assert status("/readyz") == 200
