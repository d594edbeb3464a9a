from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from headrace.errors import SetupError
from services.ctl import running
from services.ctl.running import Document, StateFile, find_running, identity_of

DOCUMENT = Document(
    http=["http://127.0.0.1:8000"],
    bootstrap_servers="127.0.0.1:9092",
    pids={"kafka": [1]},
    admin={},
)


def test_a_running_platform_is_found_and_a_closed_one_is_not(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.write(DOCUMENT, [])

    found = find_running(tmp_path)
    state.close()

    assert found is not None
    assert found.document == DOCUMENT
    assert found.pid == os.getpid()
    assert find_running(tmp_path) is None


def test_a_second_supervisor_of_a_folder_is_refused(tmp_path: Path) -> None:
    state = StateFile(tmp_path)
    state.write(DOCUMENT, [])

    with pytest.raises(SetupError, match=rf"process {os.getpid()}\): stop it with"):
        StateFile(tmp_path)
    state.close()


def test_a_leftover_is_recognised_and_its_processes_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"]) as orphan:
        identity = identity_of(orphan.pid)
        stranger = identity_of(os.getpid())
        assert identity is not None
        assert stranger is not None
        leftover = {
            "supervisor": [2**22 + 1, 0],
            "document": DOCUMENT,
            # The last one has our number and another start: a process id used again.
            "children": [identity, [stranger.pid, stranger.started_ms - 1]],
        }
        (tmp_path / "up.json").write_bytes(msgspec.json.encode(leftover))

        assert find_running(tmp_path) is None
        StateFile(tmp_path).close()

        assert orphan.wait(10) == -9


def test_an_ephemeral_platform_is_found_when_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / f"{running.EPHEMERAL_PREFIX}{name}" for name in "ab"]
    for folder in folders:
        folder.mkdir()
    first = StateFile(folders[0])
    first.write(DOCUMENT, [])

    found = find_running(None)
    assert found is not None
    assert found.data == folders[0]

    second = StateFile(folders[1])
    second.write(DOCUMENT, [])
    with pytest.raises(SetupError, match="name one with --data"):
        find_running(None)
    first.close()
    second.close()
