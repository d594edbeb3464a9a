"""``headrace doctor``: what this machine lacks, and how to get it."""

from __future__ import annotations

import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec
import psutil
from rich.console import Console
from rich.text import Text

from headrace.broker import KafkaConnection, reach
from headrace.embedded import KAFKA_VERSION, cache_folder, find_java, missing_jars
from headrace.errors import SetupError
from headrace.runtime import CUDA_NEEDS, DeviceSettings, Provider, open_device
from services.ctl.errors import UsageError
from services.ctl.ports import ReservedPort
from services.ctl.running import DATA_FOLDER, all_running
from services.ctl.where import KAFKA_ANSWERS_WITHIN_S, kafka_elsewhere

__all__ = ["Finding", "State", "doctor"]

_OPEN_FILES_MIN = 4_096
_MEMORY_MIN = 2 << 30
_DISK_MIN = 2 << 30
_JAVA_ANSWERS_WITHIN_S = 20


class State(StrEnum):
    """``note``: it works, and this is worth knowing."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; ``remedy`` says how to get what is missing."""

    what: str
    state: State
    found: str
    remedy: str = ""


def doctor(*, output: Literal["table", "json"] = "table") -> int:
    """Look at what Headrace needs from this machine. Exit status 1: something lacks.

    Parameters
    ----------
    output
        table, or json.
    """
    findings = [check() for check in _CHECKS]
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _show(findings)
    return int(any(finding.state is State.MISSING for finding in findings))


def _machine() -> Finding:
    found = f"{platform.system()} {platform.machine()}"
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return Finding("machine", State.OK, found)
    remedy = "use a Linux x86_64 machine, a virtual machine or a container"
    return Finding("machine", State.MISSING, found, remedy)


def _python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    if (3, 11) <= sys.version_info < (3, 15):
        return Finding("python", State.OK, found)
    remedy = "make PYTHON=/path/to/python3, of version 3.11 to 3.14"
    return Finding("python", State.MISSING, found, remedy)


def _java() -> Finding:
    try:
        java = find_java()
        done = subprocess.run(
            (java, "-version"),
            capture_output=True,
            text=True,
            timeout=_JAVA_ANSWERS_WITHIN_S,
            check=True,
        )
    except SetupError as error:
        return Finding("java", State.MISSING, "none that runs Kafka", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "make setup, or point JAVA_HOME to a Java of 17 or newer"
        return Finding("java", State.MISSING, f"it does not run: {error}", remedy)
    return Finding("java", State.OK, f"{done.stderr.splitlines()[0]} ({java})")


def _jars() -> Finding:
    missing = len(missing_jars())
    where = f"Apache Kafka {KAFKA_VERSION} in {cache_folder()}"
    if not missing:
        return Finding("jars", State.OK, where)
    return Finding("jars", State.NOTE, f"{missing} to fetch", "`headrace up` fetches")


def _ports() -> Finding:
    """Those that `up` takes when it is told no other."""
    remedies = {}
    for number, option in ((8000, "--http-port"), (9092, "--kafka-port")):
        try:
            ReservedPort(number, option=option).release()
        except SetupError as error:
            remedies[number] = str(error)
    ours = "; ".join(
        f"Headrace runs from {each.data}: {' '.join(each.document.http)}"
        for each in all_running()
    )
    states = [
        f"{number} is {'taken' if number in remedies else 'free'}"
        for number in (8000, 9092)
    ]
    found = "; ".join(filter(None, (", ".join(states), ours)))
    if not remedies or ours:
        return Finding("ports", State.OK, found)
    return Finding("ports", State.NOTE, found, " ".join(remedies.values()))


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES_MIN:
        found = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
        return Finding("open files", State.OK, found)
    remedy = f"`ulimit -Hn {_OPEN_FILES_MIN}` as root, or limits.conf"
    return Finding("open files", State.NOTE, f"at most {hard} connections", remedy)


def _memory() -> Finding:
    free = psutil.virtual_memory().available
    return _enough("memory", free, _MEMORY_MIN, "close other programs")


def _disk() -> Finding:
    here = DATA_FOLDER if DATA_FOLDER.exists() else Path.cwd()
    free = shutil.disk_usage(here).free
    return _enough("disk", free, _DISK_MIN, "name another folder with --data")


def _enough(what: str, free: int, wanted: int, remedy: str) -> Finding:
    found = f"{free / (1 << 30):.1f} GiB free"
    if free >= wanted:
        return Finding(what, State.OK, found)
    found += f" of {wanted / (1 << 30):.0f} that it may need"
    return Finding(what, State.NOTE, found, remedy)


def _device() -> Finding:
    if open_device(DeviceSettings()).provider is Provider.CUDA:
        return Finding("gpu", State.OK, "models run on CUDA")
    return Finding("gpu", State.NOTE, "models run on the CPU", f"for CUDA {CUDA_NEEDS}")


def _cluster() -> Finding:
    try:
        elsewhere = kafka_elsewhere()
    except UsageError as error:
        return Finding("kafka", State.MISSING, "no address", str(error))
    if not elsewhere:
        return Finding("kafka", State.OK, "`headrace up` starts one")
    try:
        reach(KafkaConnection(elsewhere, "headrace-ctl"), KAFKA_ANSWERS_WITHIN_S)
    except SetupError as error:
        found = f"no cluster at {elsewhere}"
        return Finding("kafka", State.MISSING, found, str(error))
    return Finding("kafka", State.OK, f"the cluster at {elsewhere} is used")


_CHECKS: tuple[Callable[[], Finding], ...] = (
    _machine,
    _python,
    _cluster,
    _java,
    _jars,
    _ports,
    _open_files,
    _memory,
    _disk,
    _device,
)

_STYLE = {State.OK: "green", State.NOTE: "yellow", State.MISSING: "red"}


def _show(findings: list[Finding]) -> None:
    """In lines that the terminal wraps: a path that is folded cannot be copied."""
    console = Console(highlight=False)
    for finding in findings:
        head = Text.assemble(
            f"{finding.what:<11} ",
            (f"{finding.state:<8} ", _STYLE[finding.state]),
            finding.found,
        )
        console.print(head, soft_wrap=True)
        if finding.remedy:
            console.print(Text(f"{'':<21}{finding.remedy}"), soft_wrap=True)
