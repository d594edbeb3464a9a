"""What is compared: Headrace, a raw ASGI app, and the peers, started alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from headrace.errors import SetupError
from loadtest import models, platform
from loadtest.peers.environments import environment
from loadtest.peers.forms import Form, v2
from loadtest.peers.peer import Peer, Place
from loadtest.peers.servers import (
    Probe,
    Server,
    free_port,
    own_folder,
    started,
    understood,
)
from loadtest.references import running_floor
from loadtest.scenario import Platform, Scenario

__all__ = [
    "FLOOR",
    "FUSED",
    "HEADRACE",
    "Setting",
    "System",
    "floor",
    "fused",
    "headrace",
    "of_peer",
]

HEADRACE = "Headrace"
FUSED = "Headrace fused"
FLOOR = "raw ASGI"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a system is started for."""

    name: str
    """Of the scenario."""
    scenario: Scenario
    model: Path
    """The ONNX file of the tiny model."""
    probe: Probe
    logs: Path


@dataclass(frozen=True, slots=True)
class System:
    name: str
    forms: Sequence[Form]
    """In which it is asked, one after another."""
    scenarios: frozenset[str]
    """Those that make sense for it."""
    settings: str
    start: Callable[[Setting], AbstractContextManager[Server]]
    """Raises SetupError."""


EVERY = frozenset({"tiny", "accelerator", "overload", "kill"})
_BINARY = v2("binary")


def headrace(*, with_json: bool) -> System:
    """``headrace up`` with one process of each service; ``with_json``: the tiny model
    in JSON as well."""
    forms = [_BINARY]
    if with_json:
        forms.append(v2("JSON", "]}]}"))
    settings = "one process of each service, as `headrace up` starts them; max_batch 64"
    return System(HEADRACE, forms, EVERY, settings, _started(Platform()))


def fused() -> System:
    """The same, but batches go from the former to the worker past the log."""
    settings = "`headrace up --fused`, else as Headrace"
    start = _started(Platform(fused=True))
    return System(FUSED, [_BINARY], EVERY, settings, start)


def floor() -> System:
    settings = "uvicorn with a raw ASGI app, which reads a body and answers the same"
    return System(FLOOR, [_BINARY], frozenset({"tiny"}), settings, _floor)


def of_peer(peer: Peer, directory: str) -> System:
    """``directory``: the name of its environment."""

    @contextmanager
    def start(setting: Setting) -> Iterator[Server]:
        home = environment(directory)
        log = setting.logs / f"{directory}-{setting.name}.log"
        with own_folder() as folder:
            place = Place(setting.name, free_port(), folder, home)
            with started(peer, place, setting.model, setting.probe, log) as server:
                yield server

    return System(peer.name, [peer.form], EVERY, peer.settings, start)


def _started(
    wanted: Platform,
) -> Callable[[Setting], AbstractContextManager[Server]]:
    @contextmanager
    def start(setting: Setting) -> Iterator[Server]:
        with own_folder() as folder:
            models.write_models(folder, setting.scenario.models)
            with platform.started(wanted, folder) as running:
                (address,) = running.addresses
                fault = understood(address, _BINARY, setting.probe)
                if fault:
                    raise SetupError(fault)
                yield Server(
                    address,
                    lambda: [*chain(*running.pids.values())],
                    lambda: running.pids["gpu_worker"][0],
                )

    return start


@contextmanager
def _floor(_: Setting) -> Iterator[Server]:
    with running_floor() as (address, pid):
        yield Server(address, lambda: [pid], lambda: pid)
