"""Why a broker ended, for people."""

import re
import shutil
from pathlib import Path

from headrace.errors import SetupError

__all__ = ["ended", "full_disk"]

_REASON_CHARS = 300
# The line of a stack trace, or of the JVM itself, that says what went wrong.
_REASON = re.compile(r"(?:Exception|Error): (.+)|^(?:Error|Invalid).+", re.MULTILINE)
_FREE_MIN = 64_000_000
"""Bytes. With less, a broker that ended did so for want of room, whatever its log has
room to say."""


def full_disk(folder: Path) -> str:
    """What to say of it; empty: there is room."""
    free = shutil.disk_usage(folder).free
    if free >= _FREE_MIN:
        return ""
    return (
        f"the disk of {folder} is full ({free // 1_000_000} MB free): free some, or "
        "choose a folder on another one"
    )


def ended(status: int, log: Path) -> SetupError:
    """Of one that ended with ``status`` before it answered."""
    says = f"Apache Kafka ended with status {status} before it answered"
    if full := full_disk(log.parent):
        return SetupError(f"{says}: {full}.")
    found = _REASON.search(log.read_text("utf-8", errors="replace"))
    reason = f" ({(found[1] or found[0])[:_REASON_CHARS]})" if found else ""
    return SetupError(
        f"{says}{reason}: look into {log}; if the data is damaged, delete "
        f"{log.parent / 'storage'} to start with an empty queue (what waits in it is "
        "lost)."
    )
