"""The thread that follows the model folder: loads, probes, announces, unloads.

A version's number stands for its files. Other files under a number that another
living slot serves are refused; where this slot alone serves it, a changed folder is
loaded beside the old files and takes their place once it is ready. Whatever fails
leaves what runs untouched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import NamedTuple

import msgspec

from headrace.clock import Clock
from headrace.delivery import Fitness, VersionFitness, WorkerLimits
from headrace.domain import Manifest, ModelState
from headrace.errors import BusError, ModelRefused, SetupError
from headrace.lifecycle import Health
from headrace.repository import (
    Appeared,
    Change,
    Changed,
    Changes,
    Fingerprint,
    Gone,
    VersionKey,
    scan_folder,
)
from headrace.runtime import Device, Loaded
from headrace.telemetry import Log, WorkerMetrics
from headrace.wire import Announcement
from services.gpu_worker.announcing import Announcements, Announcer
from services.gpu_worker.fitness import as_fit
from services.gpu_worker.jobs import ReadyModels, Runnable
from services.gpu_worker.loads import Loads
from services.gpu_worker.settings import ModelsSettings

__all__ = ["MODELS", "Models", "Neighbourhood"]

MODELS = "models"
"""What ``/readyz`` awaits from this thread: that every folder found at the start is
loaded or refused."""

REASON_CHARS_MAX = 4_000
"""Longer reasons of a refusal are cut."""

_PROVISION_US = 250_000
"""Topics are created this often while versions load. One request takes 200 ms for one
model and little more for seventy, most of it to wait for leaders."""

_SAID_S = 1.0
"""Longest that a load waits until the log says that it has begun."""

_BACKENDS = {"onnx": "onnxruntime", "simulated": "simulated"}


class Neighbourhood(NamedTuple):
    """What the thread needs from the rest of the process and of the pool."""

    slot: int
    announcements: Announcements
    announcer: Announcer
    settle: Callable[[], None]
    """Wait until slots that live have been heard."""
    heard: Callable[[int], bool]
    """Whether a worker slot is alive."""
    is_dead: Callable[[int], bool]
    """Whether it has been silent for so long that others speak for it."""
    incarnation: Callable[[], int | None]
    held: Callable[[], set[Runnable]]
    """Versions that batches in this process still need."""
    provision: Callable[[set[str]], None]
    """Create the topics of models; raises BusError."""
    ready: Callable[[frozenset[str]], None]
    """The versions that can run now, after any change."""


class _Version:
    """A version folder that has appeared."""

    def __init__(self, said: Announcement, runnable: Runnable | None = None) -> None:
        self.said = said
        """Its last announcement."""
        self.runnable = runnable
        self.probed_warnings = said.warnings
        self.fitness: tuple[Fitness, str] = (Fitness(), "")
        self.unloading_us = 0


class Models:
    """Follows the folder until ``stop``."""

    def __init__(  # noqa: PLR0913 - a thread's whole surroundings
        self,
        settings: ModelsSettings,
        limits: WorkerLimits,
        device: Device,
        ready: ReadyModels,
        around: Neighbourhood,
        *,
        health: Health,
        clock: Clock,
        log: Log,
        metrics: WorkerMetrics,
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._loads = Loads(settings.folder, device, log, metrics)
        self._ready = ready
        self._around = around
        self._health = health
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._changes = Changes()
        self._versions: dict[VersionKey, _Version] = {}
        self._unreadable = ""
        self._conflicts: dict[VersionKey, str] = {}
        self._suspects: set[tuple[VersionKey, str]] = set()
        self._proven: set[tuple[VersionKey, str]] = set()
        self._unprovisioned: set[VersionKey] = set()
        self._provisioned_us = 0
        self._scans = 0
        self._news: SimpleQueue[tuple[Runnable, Fitness, str] | None] = SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="models", daemon=True)

    def prepare(self) -> None:
        """Before the join: say of every version that this slot announced in an
        earlier life that it is loading, or gone. Raises SetupError without a folder."""
        found = scan_folder(self._settings.folder)
        around = self._around
        self._suspects = around.announcements.suspects(around.slot)
        self._proven = around.announcements.proven()
        for key, said in around.announcements.of_slot(around.slot).items():
            if key in found and said.state is not ModelState.REFUSED:
                self._say(key, ModelState.LOADING, said.sha256, begun=said.load_begun)
            elif key not in found:
                around.announcer.say(key, None)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait for a load that is under way."""
        self._stopped.set()
        self._news.put(None)

    def fitness_changed(self, runnable: Runnable, fitness: Fitness, why: str) -> None:
        """Announce it, from this object's own thread."""
        self._news.put((runnable, fitness, why))

    def _follow(self) -> None:
        self._around.settle()
        self._load_known()
        while not self._stopped.is_set():
            self._look()
            self._hear(self._clock.now_us() + self._settings.scan_ms * 1000)

    def _hear(self, until_us: int) -> None:
        """Announce what is new of fitness until the next look is due."""
        while (left_us := until_us - self._clock.now_us()) > 0:
            try:
                news = self._news.get(timeout=left_us / 1e6)
            except Empty:
                return
            if news is None:
                return
            runnable, fitness, why = news
            key = VersionKey(runnable.model, runnable.version)
            version = self._versions.get(key)
            if version is None or version.runnable is not runnable:
                continue
            version.fitness = (fitness, why)
            if version.said.state in {ModelState.READY, ModelState.FAILING}:
                self._announce(key, as_fit(version.said, *version.fitness))

    def _load_known(self) -> None:
        """Load at once what the pool has loaded before from the same files."""
        known = self._around.announcements.loaded_before()
        suspects = []
        for key, fingerprint in scan_folder(self._settings.folder).items():
            if key not in known or fingerprint.problem:
                continue
            sha256 = self._sha256(key, fingerprint)
            if sha256 not in known[key]:
                continue
            self._changes.trust(key, fingerprint)
            if (key, sha256) in self._suspects:
                suspects.append((key, sha256))
            else:
                self._take_up(key, sha256)
        for each in suspects:
            self._take_up(*each)
        self._provision(self._unprovisioned)

    def _look(self) -> None:
        try:
            found = scan_folder(self._settings.folder)
        except SetupError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                self._log.error("setup.refused", text=self._unreadable)
            return
        self._unreadable = ""
        for change in self._changes.observe(found):
            self._change(change, found)
        for key, sha256 in list(self._conflicts.items()):
            if self._other_files(key, sha256) is None:
                self._take_up(key, sha256)
        self._provision(self._unprovisioned)
        for key, version in list(self._versions.items()):
            self._unload_when_idle(key, version)
            self._announce_runs(key, version)
        self._bury_the_dead()
        self._around.announcer.repeat()
        self._scans += 1
        if self._scans == 2:
            self._health.met(MODELS)

    def _change(self, change: Change, found: dict[VersionKey, Fingerprint]) -> None:
        match change:
            case Gone(key):
                self._retire(key)
            case Appeared(key, problem) | Changed(key, problem):
                if problem:
                    self._refuse(key, problem)
                    return
                try:
                    sha256 = self._loads.sha256(key, found[key])
                except ModelRefused as error:
                    self._refuse(key, str(error))
                    return
                self._take_up(key, sha256)

    def _sha256(self, key: VersionKey, fingerprint: Fingerprint) -> str:
        try:
            return self._loads.sha256(key, fingerprint)
        except ModelRefused:
            return ""  # it changes just now; the next looks tell

    def _take_up(self, key: VersionKey, sha256: str) -> None:
        """Load a folder that is complete, unless it is loaded from these files."""
        known = self._versions.get(key)
        if known and known.runnable and known.said.sha256 == sha256:
            if known.said.state is ModelState.UNLOADING:
                self._announce_ready(key)
            return
        self._conflicts.pop(key, None)
        others = self._other_files(key, sha256)
        if others is not None:
            self._conflicts[key] = sha256
            self._refuse(
                key,
                f"slot {others.slot} serves other files under this number (sha256 "
                f"{others.sha256[:12]}…, here {sha256[:12]}…): give the new files a "
                "new version number",
                sha256,
            )
            return
        if not (known and known.runnable):
            self._say(key, ModelState.LOADING, sha256, begun=True)
        self._log.info("model.loading", model=key.model, version=key.version)
        began_us = self._clock.now_us()
        files = (key, sha256)
        try:
            if files in self._suspects:
                self._loads.try_apart(key)
                self._suspects.discard(files)
            if files not in self._proven:
                # Should it end this process, the next one must know.
                self._around.announcer.flush(_SAID_S)
            manifest, loaded = self._loads.load(key)
        except ModelRefused as error:
            self._refuse(key, str(error), sha256)
            return
        self._metrics.loads.labels("ready").inc()
        self._log.info(
            "model.ready",
            model=key.model,
            version=key.version,
            max_batch=loaded.probed.max_batch,
            provider=loaded.session.provider,
            warnings="; ".join(loaded.probed.warnings),
            us=self._clock.now_us() - began_us,
        )
        self._serve(key, sha256, manifest, loaded)

    def _other_files(self, key: VersionKey, sha256: str) -> Announcement | None:
        around = self._around
        return around.announcements.other_files(key, sha256, around.slot, around.heard)

    def _serve(
        self, key: VersionKey, sha256: str, manifest: Manifest, loaded: Loaded
    ) -> None:
        session, probed = loaded
        said = Announcement(
            model=key.model,
            version=key.version,
            slot=self._around.slot,
            state=ModelState.READY,
            warnings=probed.warnings,
            signature=probed.layout.signature,
            sha256=sha256,
            max_batch=probed.max_batch,
            batch_axes=probed.layout.batch_axes,
            padding=probed.layout.padding,
            latency_objective_ms=manifest.latency_objective_ms,
            run_us=probed.run_us,
            run_length=probed.run_length,
            platform=session.platform,
            backend=_BACKENDS[manifest.backend],
        )
        fitness = VersionFitness(self._limits, probed.max_batch)
        runnable = Runnable(*key, session, probed.layout, fitness, probed.row)
        self._versions[key] = _Version(said, runnable)
        self._ready.put(runnable)
        self._changed()
        self._announce_ready(key)

    def _announce_ready(self, key: VersionKey) -> None:
        """Once the model's topics exist; without them nobody could ask for it."""
        self._unprovisioned.add(key)
        if self._clock.now_us() - self._provisioned_us >= _PROVISION_US:
            self._provision(self._unprovisioned)

    def _provision(self, waiting: Iterable[VersionKey]) -> None:
        keys = sorted(waiting)
        models = {key.model for key in keys}
        if not models:
            return
        try:
            self._around.provision(models)
        except BusError as error:
            if len(models) > 1:  # it may be the fault of one
                for model in sorted(models):
                    self._provision(key for key in keys if key.model == model)
                return
            self._log.warning("topic.missing", model=models.pop(), text=str(error))
            return
        self._provisioned_us = self._clock.now_us()
        self._unprovisioned.difference_update(keys)
        for key in keys:
            version = self._versions[key]
            self._announce(key, as_fit(version.said, *version.fitness))

    def _refuse(self, key: VersionKey, reason: str, sha256: str = "") -> None:
        """Say why; what this slot serves under the number goes on."""
        if len(reason) > REASON_CHARS_MAX:
            reason = f"{reason[:REASON_CHARS_MAX]}..."
        self._metrics.loads.labels("refused").inc()
        self._log.error(
            "model.refused", model=key.model, version=key.version, text=reason
        )
        known = self._versions.get(key)
        if known and known.runnable:
            warning = f"the folder has changed and cannot be served: {reason}"
            warnings = (*known.probed_warnings, warning)
            self._announce(key, msgspec.structs.replace(known.said, warnings=warnings))
            return
        begun = (key, sha256) in self._suspects
        self._say(key, ModelState.REFUSED, sha256, begun=begun, reason=reason)

    def _retire(self, key: VersionKey) -> None:
        """Its folder is gone: no new requests, then unload (:meth:`_look`)."""
        self._conflicts.pop(key, None)
        version = self._versions.get(key)
        if version is None or version.runnable is None:
            self._versions.pop(key, None)
            self._around.announcer.say(key, None)
            return
        self._unprovisioned.discard(key)
        version.unloading_us = self._clock.now_us()
        said = msgspec.structs.replace(
            version.said, state=ModelState.UNLOADING, reason="its folder is gone"
        )
        self._announce(key, said)

    def _unload_when_idle(self, key: VersionKey, version: _Version) -> None:
        runnable = version.runnable
        if runnable is None or version.said.state is not ModelState.UNLOADING:
            return
        idle_us = self._clock.now_us() - max(version.unloading_us, runnable.used_us)
        is_idle = idle_us >= self._settings.unload_idle_s * 1e6
        if not is_idle or runnable in self._around.held():
            return
        del self._versions[key]
        self._ready.drop(*key)
        self._changed()
        self._around.announcer.say(key, None)
        runnable.session.close()
        self._log.info("model.unloaded", model=key.model, version=key.version)

    def _announce_runs(self, key: VersionKey, version: _Version) -> None:
        runs = version.runnable and version.runnable.runs
        if runs and (told := runs.told(version.said, self._clock.now_us())):
            self._announce(key, told)

    def _bury_the_dead(self) -> None:
        for slot, keys in self._around.announcements.slots().items():
            if slot == self._around.slot or not self._around.is_dead(slot):
                continue
            self._log.warning("slot.silent", silent=slot, versions=len(keys))
            for key in keys:
                self._around.announcer.bury(key, slot)

    def _changed(self) -> None:
        names = self._ready.names()
        self._metrics.ready_versions.set(len(names))
        self._around.ready(names)

    def _say(
        self,
        key: VersionKey,
        state: ModelState,
        sha256: str,
        *,
        begun: bool,
        reason: str = "",
    ) -> None:
        """Announce a version that cannot run (yet); ``begun``: as ``load_begun``."""
        said = Announcement(
            model=key.model,
            version=key.version,
            slot=self._around.slot,
            state=state,
            reason=reason,
            sha256=sha256,
            load_begun=begun,
        )
        self._versions[key] = _Version(said)
        self._announce(key, said)

    def _announce(self, key: VersionKey, said: Announcement) -> None:
        said = msgspec.structs.replace(said, incarnation=self._around.incarnation())
        self._versions[key].said = said
        self._around.announcer.say(key, said)
        self._log.info(
            "model.announced", model=key.model, version=key.version, state=said.state
        )
