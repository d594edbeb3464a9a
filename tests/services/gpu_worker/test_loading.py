"""The thread that follows the folder, and files of which nobody has thought."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import onnxruntime

from headrace.broker import NewTopic
from headrace.clock import SystemClock
from headrace.delivery import WorkerLimits
from headrace.domain import ModelState
from headrace.lifecycle import Health, Pulse
from headrace.runtime import Device, Provider
from headrace.telemetry import MetricsRegistry, WorkerMetrics, get_log
from headrace.testing import ManualClock, MemoryBroker
from headrace.wire import Announcement, decode_json
from services.gpu_worker.announcing import Announcements, Announcer
from services.gpu_worker.jobs import ReadyModels
from services.gpu_worker.models import MODELS, Models, Neighbourhood
from services.gpu_worker.settings import ModelsSettings
from tests.models import graphs
from tests.models.folders import put_simulated, put_version

TOPIC = "control.models"
WAIT_S = 20


class _FailingDevice(Device):
    """Every ONNX file meets an error that no code expects."""

    def session_options(self) -> onnxruntime.SessionOptions:
        raise ZeroDivisionError("division by zero")


def test_an_unforeseen_error_refuses_one_version_and_the_next_is_served(
    tmp_path: Path,
) -> None:
    put_version(tmp_path, "bad", "1", graphs.log())
    put_simulated(tmp_path, "sim", "1")
    broker = MemoryBroker(ManualClock())
    broker.admin().create_topics([NewTopic(TOPIC, 1, {})], 1)
    producer = broker.producer()
    served = Event()
    registry = MetricsRegistry()
    clock, log = SystemClock(), get_log()
    models = Models(
        ModelsSettings(folder=tmp_path, scan_ms=1),
        WorkerLimits(),
        _FailingDevice(Provider.CPU, 1),
        ReadyModels(),
        Neighbourhood(
            slot=0,
            announcements=Announcements(lambda _key, _slot: None, log),
            announcer=Announcer(producer, TOPIC, 0),
            settle=lambda: None,
            heard=lambda _slot: True,
            is_dead=lambda _slot: False,
            incarnation=lambda: 7,
            held=set,
            provision=lambda _model: served.set(),
            ready=lambda _names: None,
        ),
        health=Health(Pulse(clock), {MODELS: "models are loading"}),
        clock=clock,
        log=log,
        metrics=WorkerMetrics(registry),
    )

    models.start()
    assert served.wait(WAIT_S)
    models.stop()

    producer.flush(1)
    said = [decode_json(Announcement, record) for record in broker.records(TOPIC)]
    refused = [each for each in said if each.state is ModelState.REFUSED]
    assert [each.model for each in refused] == ["bad"]
    assert "not foreseen (ZeroDivisionError)" in refused[0].reason
    failed = registry.collectors.get_sample_value(
        "headrace_model_loads_total", {"outcome": "failed"}
    )
    assert failed == 1
