"""What make says on a machine that Headrace does not run on."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.checkout import ROOT
from tests.lanes import COMPUTING

# Answers as a Debian python3 without its venv package does.
_WITHOUT_ENSUREPIP = f"""#!/bin/sh
case "$2" in *ensurepip*) exit 1 ;; esac
exec {sys.executable} "$@"
"""
_TOO_OLD = f"""#!/bin/sh
case "$1$2" in
  *version_info*) exit 1 ;;
  --version) echo Python 3.9.2; exit 0 ;;
esac
exec {sys.executable} "$@"
"""


def make_setup(
    folder: Path, programs: dict[str, str], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Run `make setup` in a fresh checkout with these programs first on the path."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    for name, text in programs.items():
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["make", "setup", *arguments],  # noqa: S607 - make is wherever the user has it
        cwd=folder,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("programs", "arguments", "sentence"),
    [
        (
            {"uname": "#!/bin/sh\necho Darwin arm64\n"},
            (),
            "Headrace runs on Linux x86_64; this is Darwin arm64.",
        ),
        ({"python3": _WITHOUT_ENSUREPIP}, (), "apt-get install python3-venv"),
        (
            {"python3": _TOO_OLD},
            (),
            "needs Python 3.11 to 3.14; Python 3.9.2 was found.",
        ),
        ({}, ("PYTHON=python-none",), "python-none is missing: install Python 3.11"),
    ],
)
def test_setup_says_what_is_missing(
    tmp_path: Path, programs: dict[str, str], arguments: tuple[str, ...], sentence: str
) -> None:
    done = make_setup(tmp_path, programs, *arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_every_target_that_runs_something_sets_up_first() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    targets = dict.fromkeys(("setup", "demo", "test", "check", "up", "down", "schemas"))
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in targets:
            targets[name] = rest.split("##")[0].strip()
    assert set(targets.values()) == {"$(READY)"}


@pytest.mark.parametrize("folder", COMPUTING)
def test_what_runs_beside_the_other_tests_needs_no_broker(folder: str) -> None:
    files = list((ROOT / "tests" / folder).rglob("test_*.py"))
    assert files
    marked = re.compile(r"mark\.kafka")
    assert [file.name for file in files if marked.search(file.read_text("utf-8"))] == []
