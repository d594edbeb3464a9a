"""Ports of this machine: choosing a free one, refusing a taken one."""

import errno
import random
import socket
from contextlib import suppress

import psutil

from headrace.errors import SetupError

__all__ = ["check_free", "free_port", "port_error"]

# Below the range from which the kernel takes the ports of outgoing connections, so
# that a chosen port is still free when the broker binds it.
_CHOICE = range(20_000, 32_768)
_TRIES = 100


def free_port(host: str) -> int:
    """A port that nobody listens on. Raises SetupError if a hundred are taken."""
    for port in random.sample(_CHOICE, _TRIES):
        if _why_not(host, port) is None:
            return port
    raise SetupError(
        f"No free port was found between {_CHOICE.start} and {_CHOICE.stop - 1}: "
        f"stop what listens there."
    )


def check_free(host: str, port: int) -> None:
    """Raise SetupError if a process listens on ``port``, naming it where we may."""
    error = _why_not(host, port)
    if error is not None:
        raise port_error(port, "--kafka-port", error)


def port_error(port: int, option: str, error: OSError) -> SetupError:
    """Why ``port`` cannot be had, with ``option`` as the way out."""
    if error.errno == errno.EADDRINUSE:
        return SetupError(
            f"Port {port} is taken{_holder_of(port)}: stop what listens there, or "
            f"choose another port with {option}."
        )
    return SetupError(
        f"Port {port} cannot be used ({error.strerror}): choose another port with "
        f"{option}."
    )


def _why_not(host: str, port: int) -> OSError | None:
    with socket.socket() as attempt:
        # As the broker does: connections of its predecessor may still be closing.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            return error
    return None


def _holder_of(port: int) -> str:
    """Words to follow "taken": which process listens there, as far as we may see."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr[1:2] == (port,) and connection.pid:
                name = psutil.Process(connection.pid).name()
                return f" by process {connection.pid} ({name})"
    return ""
