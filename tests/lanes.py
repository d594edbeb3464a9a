"""``make test``: what only computes runs beside what mostly waits for other processes.

Given anything to choose or to say, it is pytest as it is. Otherwise the folders that
``COMPUTING`` names run in a process of their own, which stands back where the other one
wants the processor; what it says follows at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

__all__ = ["COMPUTING", "main"]

COMPUTING = (
    "admission",
    "architecture",
    "comparison",
    "delivery",
    "jobs",
    "registry",
    "repository",
    "scheduling",
    "simulation",
    "wire",
)
"""They start nothing and have no time limits of their own."""

_STANDS_BACK = ("nice", "-n", "10")
_PYTEST = (sys.executable, "-m", "pytest")


def main(arguments: Sequence[str]) -> int:
    """The exit status: pytest's, of the first that is not 0."""
    if arguments:
        os.execv(_PYTEST[0], [*_PYTEST, *arguments])  # noqa: S606 - in our place
    folders = [f"tests/{name}" for name in COMPUTING]
    print(f"Beside the others, shown at the end: {' '.join(folders)}", flush=True)
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(
            [*_STANDS_BACK, *_PYTEST, "-p", "no:cacheprovider", *folders],
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as beside:
            status = subprocess.call(
                [*_PYTEST, *(f"--ignore={folder}" for folder in folders)]
            )
        output.seek(0)
        print(output.read().decode(errors="replace"))
    print(f"exit status: {status}, beside {beside.returncode}")
    return status or beside.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
