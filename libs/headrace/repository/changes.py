"""Which version folders appeared, changed or went, from one scan to the next: pure.

A folder counts only when two scans in a row saw the same files, so that a copy in
progress is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.repository.folders import Fingerprint, VersionKey

__all__ = ["Appeared", "Change", "Changed", "Changes", "Gone"]


class Appeared(msgspec.Struct, frozen=True):
    """A version folder is complete, for the first time or after it was gone."""

    key: VersionKey
    problem: str
    """Why the folder may not be read at all; empty: it may."""


class Changed(msgspec.Struct, frozen=True):
    """Files of a version folder are not what they were when it appeared."""

    key: VersionKey
    problem: str


class Gone(msgspec.Struct, frozen=True):
    """A version folder that had appeared is not there any more."""

    key: VersionKey


Change = Appeared | Changed | Gone


class _Seen(NamedTuple):
    last: Fingerprint
    told: Fingerprint | None
    """The files of the last event; None: nothing was said of this folder yet."""


class Changes:
    """Compares each scan with the ones before."""

    def __init__(self) -> None:
        self._seen: dict[VersionKey, _Seen] = {}

    def observe(self, scan: Mapping[VersionKey, Fingerprint]) -> list[Change]:
        """What is settled now; call it once a scan, in the order of scans."""
        changes: list[Change] = [
            Gone(key)
            for key, seen in self._seen.items()
            if key not in scan and seen.told is not None
        ]
        before, self._seen = self._seen, {}
        for key, fingerprint in scan.items():
            seen = before.get(key)
            told = seen.told if seen else None
            if seen and fingerprint == seen.last and fingerprint != told:
                kind = Appeared if told is None else Changed
                changes.append(kind(key, fingerprint.problem))
                told = fingerprint
            self._seen[key] = _Seen(fingerprint, told)
        return changes

    def trust(self, key: VersionKey, fingerprint: Fingerprint) -> None:
        """Take the folder as appeared: its content is known to be complete."""
        self._seen[key] = _Seen(fingerprint, fingerprint)
