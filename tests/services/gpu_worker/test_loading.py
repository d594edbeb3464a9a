"""The thread that follows the folder, and files of which nobody has thought."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import onnxruntime

from headrace.broker import NewTopic
from headrace.clock import SystemClock
from headrace.delivery import WorkerLimits
from headrace.domain import ModelState
from headrace.errors import BusError
from headrace.lifecycle import Health, Pulse
from headrace.repository import VersionKey, content_sha256, scan_folder
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


class Following:
    """A folder that is followed on a log in memory, on the real clock."""

    def __init__(
        self, folder: Path, device: Device, provision: Callable[[set[str]], None]
    ) -> None:
        self._broker = MemoryBroker(ManualClock())
        self._broker.admin().create_topics([NewTopic(TOPIC, 1, {})], 1)
        self._producer = self._broker.producer()
        self.registry = MetricsRegistry()
        clock, log = SystemClock(), get_log()
        self.announcements = Announcements(lambda _key, _slot: None, log)
        self.models = Models(
            ModelsSettings(folder=folder, scan_ms=1),
            WorkerLimits(),
            device,
            ReadyModels(),
            Neighbourhood(
                slot=0,
                announcements=self.announcements,
                announcer=Announcer(self._producer, TOPIC, 0),
                settle=lambda: None,
                heard=lambda _slot: True,
                is_dead=lambda _slot: False,
                incarnation=lambda: 7,
                held=set,
                provision=provision,
                ready=lambda _names: None,
            ),
            health=Health(Pulse(clock), {MODELS: "models are loading"}),
            clock=clock,
            log=log,
            metrics=WorkerMetrics(self.registry),
        )

    def read(self, *said: Announcement) -> None:
        """What the log holds before this process starts."""
        writer = Announcer(self._producer, TOPIC, 0)
        for each in said:
            writer.say(VersionKey(each.model, each.version), each)
        writer.flush(1)
        self.announcements.take(self._broker.records(TOPIC))

    def said(self, state: ModelState) -> list[Announcement]:
        self._producer.flush(1)
        records = self._broker.records(TOPIC)
        said = [decode_json(Announcement, record) for record in records]
        return [each for each in said if each.state is state]


def test_an_unforeseen_error_refuses_one_version_and_the_next_is_served(
    tmp_path: Path,
) -> None:
    put_version(tmp_path, "bad", "1", graphs.log())
    put_simulated(tmp_path, "sim", "1")
    served = Event()
    device = _FailingDevice(Provider.CPU, 1)
    following = Following(tmp_path, device, lambda _models: served.set())

    following.models.start()
    assert served.wait(WAIT_S)
    following.models.stop()

    (refused,) = following.said(ModelState.REFUSED)
    assert refused.model == "bad"
    assert "not foreseen (ZeroDivisionError)" in refused.reason
    failed = following.registry.collectors.get_sample_value(
        "headrace_model_loads_total", {"outcome": "failed"}
    )
    assert failed == 1


def test_a_version_that_ended_the_process_before_is_tried_in_one_of_its_own(
    tmp_path: Path,
) -> None:
    """Without that it would end each process of the slot, and all models with it."""
    put_version(tmp_path, "fatal", "1", graphs.fatal())
    put_version(tmp_path, "innocent", "1", graphs.double())
    put_simulated(tmp_path, "sim", "1")
    provisioned: SimpleQueue[set[str]] = SimpleQueue()
    following = Following(tmp_path, Device(Provider.CPU, 1), provisioned.put)
    found = scan_folder(tmp_path)
    following.read(
        *(
            Announcement(
                model=key.model,
                version=key.version,
                slot=0,
                state=ModelState.LOADING,
                sha256=content_sha256(tmp_path, key, found[key]),
                load_begun=key.model != "sim",
            )
            for key in found
        )
    )

    following.models.prepare()
    following.models.start()
    served: list[str] = []
    while len(served) < 2:
        served += provisioned.get(timeout=WAIT_S)
    following.models.stop()

    assert served == ["sim", "innocent"]  # who waits for nobody first
    (refused,) = following.said(ModelState.REFUSED)
    assert refused.model == "fatal"
    assert "to load it ends the process (SIGFPE)" in refused.reason
    assert refused.load_begun  # so that the next process does not load it either
    assert not any(each.load_begun for each in following.said(ModelState.READY))


def test_topics_of_models_that_load_together_are_created_together(
    tmp_path: Path,
) -> None:
    names = [f"m{number}" for number in range(20)]
    for name in names:
        put_simulated(tmp_path, name, "1")
    asked: SimpleQueue[set[str]] = SimpleQueue()
    following = Following(tmp_path, Device(Provider.CPU, 1), asked.put)

    following.models.start()
    provisioned: list[str] = []
    calls = 0
    while len(provisioned) < len(names):
        provisioned += sorted(asked.get(timeout=WAIT_S))
        calls += 1
    following.models.stop()

    assert sorted(provisioned) == sorted(names)
    assert calls < len(names) / 2


def test_a_model_whose_topics_cannot_be_created_does_not_hold_up_the_others(
    tmp_path: Path,
) -> None:
    for name in ("a", "cursed", "z"):
        put_simulated(tmp_path, name, "1")
    tried_again = Event()
    alone = 0

    def provision(models: set[str]) -> None:
        nonlocal alone
        if "cursed" in models:
            alone += len(models) == 1
            if alone == 2:
                tried_again.set()
            raise BusError("not allowed", code="TOPIC_AUTHORIZATION_FAILED")

    following = Following(tmp_path, Device(Provider.CPU, 1), provision)

    following.models.start()
    assert tried_again.wait(WAIT_S)
    following.models.stop()

    assert {each.model for each in following.said(ModelState.READY)} == {"a", "z"}


def test_a_folder_with_a_name_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    put_simulated(tmp_path, "my.model", "1")
    (tmp_path / "sim" / "v2").mkdir(parents=True)
    put_simulated(tmp_path, "taken-up-last", "1")
    served = Event()
    following = Following(
        tmp_path, Device(Provider.CPU, 1), lambda _models: served.set()
    )

    following.models.start()
    assert served.wait(WAIT_S)
    following.models.stop()

    reasons = {
        (each.model, each.version): each.reason
        for each in following.said(ModelState.REFUSED)
    }
    assert "model name 'my.model' is not allowed" in reasons["my.model", "1"]
    assert "it must be a number from 1" in reasons["sim", "v2"]
