"""The command as a shell sees it: exit statuses, and one sentence on stderr."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def headrace(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.ctl", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(cwd), **(environment or {})},
        check=False,
    )


def test_help_lists_the_commands(tmp_path: Path) -> None:
    done = headrace("--help", cwd=tmp_path)

    assert done.returncode == 0
    for command in (
        "audit",
        "deadletters",
        "demo",
        "doctor",
        "explain",
        "down",
        "infer",
        "models",
        "topics",
        "up",
    ):
        assert f" {command} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["up", "--lanes", "2"],
            "--workers 1 is too few for --lanes 2, since each lane needs a worker",
        ),
        (
            ["up", "--formers", "2"],
            "--formers 2 is too many for --lanes 1, since a lane has one former",
        ),
        (["up", "--ingress", "0"], "--ingress is 0, and at least 1 is needed."),
        (["up", "--bogus"], "Unknown option: --bogus."),
        (["infer", "m", "--input", "no-such-file"], "no-such-file cannot be read"),
        (["audit", "--from", "yesterday"], "--from yesterday is no instant: write"),
        (["audit", "--to", "-2h"], "--to -2h is not after --from -1h."),
        (["deadletters", "redrive"], "name at least one request"),
        (["deadletters", "list", "--last", "0"], "--last is 0, and at least 1 is"),
        (["deadletters", "list", "--reason", "x"], "Invalid value"),
        (["explain"], 'Command "explain" parameter NAME requires an argument.'),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    tmp_path: Path, arguments: Sequence[str], sentence: str
) -> None:
    done = headrace(
        *arguments, cwd=tmp_path, environment={"HEADRACE_URL": "http://127.0.0.1:9"}
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"headrace: {sentence}")
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_models_folder_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    done = headrace("up", "--models", "nowhere", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr == (
        "headrace: The models folder nowhere is no folder: create it, or name another "
        "one with --models.\n"
    )


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = headrace(
            "up",
            "--http-port",
            str(port),
            cwd=tmp_path,
        )

    assert done.returncode == 1
    assert done.stderr.startswith(f"headrace: Port {port} is taken")
    assert done.stderr.endswith("choose another port with --http-port.\n")


@pytest.mark.parametrize(
    "command",
    [
        ["models"],
        ["topics"],
        ["infer", "m"],
        ["audit"],
        ["deadletters", "list"],
        ["explain", "x"],
    ],
)
def test_commands_say_how_to_start_a_platform(
    tmp_path: Path, command: Sequence[str]
) -> None:
    done = headrace(*command, cwd=tmp_path)

    assert done.returncode == 1
    assert "start it with `headrace up`" in done.stderr


def test_down_of_nothing_is_no_failure(tmp_path: Path) -> None:
    done = headrace("down", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "Nothing runs from .headrace.\n")
