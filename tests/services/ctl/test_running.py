from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from headrace.errors import SetupError
from services.ctl import running
from services.ctl.doctor import _ports
from services.ctl.running import (
    Document,
    StateFile,
    all_running,
    find_running,
    identity_of,
)
from services.ctl.up import down

DOCUMENT = Document(
    http=["http://127.0.0.1:8000"],
    bootstrap_servers="127.0.0.1:9092",
    pids={"kafka": [1]},
    admin={},
)


@pytest.fixture(autouse=True)
def _the_tests_are_a_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_COMMANDS", ("services.", "pytest"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "user"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


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
    # The last word of its command line tells it as ours.
    command = [sys.executable, "-c", "input('> ')", "services.ingress"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as orphan:
        assert orphan.stdout is not None
        # Its command line is there a moment after its start.
        orphan.stdout.read(1)
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
        write_state(tmp_path, leftover)

        assert find_running(tmp_path) is None
        StateFile(tmp_path).close()

        assert orphan.wait(10) == -9


def write_state(folder: Path, state: dict[str, object], mode: int = 0o600) -> None:
    (folder / "up.json").write_bytes(msgspec.json.encode(state))
    (folder / "up.json").chmod(mode)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user's that has nothing to do with us."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_that_is_not_ours_is_neither_a_platform_nor_killed(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    identity = identity_of(stranger.pid)
    planted = {"supervisor": identity, "document": DOCUMENT, "children": [identity]}
    write_state(tmp_path, planted)

    assert find_running(tmp_path) is None
    StateFile(tmp_path).close()

    assert stranger.poll() is None


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_may_write_is_not_believed(
    tmp_path: Path, mode: int
) -> None:
    state = StateFile(tmp_path)
    state.write(DOCUMENT, [])
    assert find_running(tmp_path) is not None

    (tmp_path / "up.json").chmod(mode)

    assert find_running(tmp_path) is None
    state.close()


def test_a_file_that_is_a_link_is_neither_believed_nor_written(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "up.json").symlink_to(tmp_path / "precious")

    with pytest.raises(SetupError, match=r"up\.json cannot be written"):
        StateFile(tmp_path)
    assert find_running(tmp_path) is None
    assert (tmp_path / "precious").read_text() == "mine"


@contextmanager
def ephemeral(name: str) -> Iterator[Path]:
    folder = Path(tempfile.gettempdir()) / f"{running.EPHEMERAL_PREFIX}{name}"
    folder.mkdir()
    state = StateFile(folder)
    state.write(DOCUMENT, [])
    try:
        yield folder
    finally:
        state.close()


def test_an_ephemeral_platform_belongs_to_the_directory_it_was_started_in(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with ephemeral("a") as first:
        found = find_running(None)
        assert found is not None
        assert found.data == first

        with ephemeral("b"), pytest.raises(SetupError, match="name one with --data"):
            find_running(None)

        monkeypatch.chdir(tmp_path / "elsewhere")
        assert find_running(None) is None
        assert down() == 0
        assert capsys.readouterr().out == (
            "Nothing runs from .headrace.\n"
            f"What runs (started in {tmp_path}) is stopped by "
            f"`headrace down --data {first}`.\n"
        )


def test_a_platform_is_listed_wherever_it_was_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "there" / "kept"
    data.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "there")
    state = StateFile(data)
    state.write(DOCUMENT, [])
    monkeypatch.chdir(tmp_path)

    assert down() == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        f"What runs (started in {data.parent}) is stopped by "
        f"`headrace down --data {data}`."
    )
    assert str(data) in _ports().found

    state.close()
    assert all_running() == []
    assert list((tmp_path / "user" / "headrace").iterdir()) == []


def test_an_entry_that_others_may_write_or_whose_folder_is_gone_lists_nothing(
    tmp_path: Path,
) -> None:
    data = tmp_path / "kept"
    data.mkdir()
    state = StateFile(data)
    state.write(DOCUMENT, [])
    (entry,) = (tmp_path / "user" / "headrace").iterdir()
    assert [each.data for each in all_running()] == [data]

    entry.chmod(0o622)
    assert all_running() == []
    entry.chmod(0o600)
    (data / "up.json").rename(tmp_path / "elsewhere.json")

    assert all_running() == []
    assert not entry.exists()
    state.close()


def test_a_platform_runs_also_where_it_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    state = StateFile(tmp_path)
    state.write(DOCUMENT, [])

    assert find_running(tmp_path) is not None
    state.close()


def test_doctor_lists_every_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ephemeral("a") as first, ephemeral("b") as second:
        found = _ports().found

    url = DOCUMENT.http[0]
    assert found.endswith(
        f"; Headrace runs from {first}: {url}; Headrace runs from {second}: {url}"
    )


def test_doctor_says_which_ports_are_taken_beside_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as mine:
        with suppress(OSError):  # then another has it
            mine.bind(("127.0.0.1", 8000))
        with ephemeral("a"):
            found = _ports().found

    assert found.startswith("8000 is taken, 9092 is ")
