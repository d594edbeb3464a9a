"""What is known of a peer: how it is started, asked, and what it was told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.peers.forms import Form

__all__ = ["SERVING", "Peer", "Place"]

SERVING = Path(__file__).parent / "serving"


@dataclass(frozen=True, slots=True)
class Place:
    """Where and for what a peer is started."""

    scenario: str
    port: int
    folder: Path
    """A folder of its own, empty."""
    home: Path
    """Its virtual environment."""

    @property
    def python(self) -> Path:
        return self.home / "bin/python"

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.home / "lib" / version / "site-packages"

    @property
    def tiny(self) -> bool:
        """The tiny model; else the simulated accelerator."""
        return self.scenario == "tiny"

    @property
    def bounded(self) -> bool:
        """More is offered than can be answered within the objective."""
        return self.scenario == "overload"


def _nothing(_: Place) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    form: Form
    """Binary where the server takes it."""
    settings: str
    """What a good user would set and we did, for the page."""
    command: Callable[[Place], Sequence[str | Path]]
    """Starts the server; it listens on ``place.port``."""
    environment: Callable[[Place], Mapping[str, str]] = _nothing
