"""Ports of this machine: choosing a free one, refusing a taken one."""

import random
import socket
from contextlib import suppress

import psutil

from headrace.errors import SetupError

__all__ = ["check_free", "free_port", "holder_of"]

# Below the range from which the kernel takes the ports of outgoing connections, so
# that a chosen port is still free when the broker binds it.
_CHOICE = range(20_000, 32_768)
_TRIES = 100


def free_port(host: str) -> int:
    """A port that nobody listens on. Raises SetupError if a hundred are taken."""
    for port in random.sample(_CHOICE, _TRIES):
        if _is_free(host, port):
            return port
    raise SetupError(
        f"No free port was found between {_CHOICE.start} and {_CHOICE.stop - 1}: "
        f"stop what listens there."
    )


def check_free(host: str, port: int) -> None:
    """Raise SetupError if a process listens on ``port``, naming it where we may."""
    if not _is_free(host, port):
        raise SetupError(
            f"Port {port} is taken{holder_of(port)}: stop what listens there, or "
            f"choose another port with --kafka-port."
        )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as attempt:
        # As the broker does: connections of its predecessor may still be closing.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError:
            return False
    return True


def holder_of(port: int) -> str:
    """Words to follow "taken": which process listens there, as far as we may see."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr[1:2] == (port,) and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by process {connection.pid} ({name})"
    return ""
