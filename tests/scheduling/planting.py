"""Runs tests of the core against a changed copy of it, in a process that has not
imported the core yet."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest


class Bug(NamedTuple):
    """``right`` stands once in ``module`` of the core, and becomes ``wrong``."""

    name: str
    noticed_by: str
    module: str
    right: str
    wrong: str


def run_tests(module: str, copy: Path, told: Path) -> None:
    """Ends the process with pytest's exit status; what it said is in ``told``.

    ``copy`` holds ``libs`` with the changed core.
    """
    assert not any(name.startswith("headrace") for name in sys.modules)
    sys.path.insert(0, str(copy / "libs"))
    for stream in (1, 2):
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    status = pytest.main(
        [
            *("-x", "-q", "-p", "no:cacheprovider", "--timeout", "60"),
            # Hypothesis is there before pytest could rewrite its assertions.
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
            "--hypothesis-profile=verdict",
            f"tests/scheduling/{module}",
        ]
    )
    sys.stdout.flush()
    os._exit(status)
