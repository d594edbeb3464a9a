"""Where the sockets of a machine's links lie."""

from __future__ import annotations

import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace.errors import SetupError

__all__ = ["LinkFolder"]

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FRESH_S: Final = 60.0
"""A socket that was bound a moment ago may not listen yet."""


class LinkFolder:
    """A folder of this user's alone, since whoever can write there could take the
    batches of others. Nothing but sockets lies in it."""

    def __init__(self, path: Path) -> None:
        """Made if it is missing. Raises SetupError where others can reach into it."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SetupError(
                f"{path} cannot hold the sockets of links ({error.strerror}): name "
                f"another folder with HEADRACE_FUSED__FOLDER"
            ) from error
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            os.close(self._fd)
            raise SetupError(
                f"{path} is not for this user alone, so that others could take batches "
                f"there: chmod it 0700, or name another one with HEADRACE_FUSED__FOLDER"
            )

    def close(self) -> None:
        """Of one that was only tried."""
        os.close(self._fd)

    def bind(self, name: str) -> socket.socket:
        """A socket that listens under ``name``. Raises SetupError."""
        self._sweep()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(self._address(name))
            listening.listen()
        except OSError as error:
            listening.close()
            raise SetupError(f"no link can be offered: {error.strerror}") from error
        return listening

    def connect(self, name: str) -> socket.socket | None:
        """Never blocks; None: nobody listens there, on this machine."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(0)
        try:
            connected.connect(self._address(name))
        except OSError:
            connected.close()
            return None
        return connected

    def remove(self, name: str) -> None:
        Path(self._address(name)).unlink(missing_ok=True)

    def _address(self, name: str) -> str:
        """Short, as the path of a socket must be, however deep the folder lies."""
        return f"/proc/self/fd/{self._fd}/{name}"

    def _sweep(self) -> None:
        """Remove what killed processes left."""
        for left in Path(self._address("")).iterdir():
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime < _FRESH_S:
                    continue
            connected = self.connect(left.name)
            if connected is None:
                self.remove(left.name)
            else:
                connected.close()
