"""Interpreter settings that latency needs; each with its figure."""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["configure_interpreter"]

_SWITCH_INTERVAL_S: Final = 0.001
_YOUNG_OBJECTS: Final = 50_000
_OLDER_COLLECTIONS: Final = 50


def configure_interpreter() -> None:
    """Call once, when everything that lives as long as the process is made."""
    # A thread that holds the interpreter gives it up after 5 ms by default: more
    # than a whole hop through the log takes.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # The collector took 6 % of an ingress, nearly all of it to walk over modules
    # and classes that never die. Requests are freed by reference counts.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _OLDER_COLLECTIONS, _OLDER_COLLECTIONS)
