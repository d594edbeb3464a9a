"""The command as a shell sees it: exit statuses, and one sentence on stderr."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from services.ctl import __main__
from services.ctl.__main__ import main
from tests.addresses import nobody_listens


def headrace(
    *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.ctl", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(cwd),
            "XDG_RUNTIME_DIR": str(cwd),
            **(environment or {}),
        },
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


NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "up --lanes 2",
            "--workers 1 is too few for --lanes 2, since each lane needs a worker",
        ),
        (
            "up --formers 2",
            "--formers 2 is too many for --lanes 1, since a lane has one former",
        ),
        ("up --ingress 0", 'Invalid value "0" for --ingress. Must be >= 1.'),
        ("up --workers -2", 'Invalid value "-2" for --workers. Must be >= 1.'),
        ("up --workers 999999", 'Invalid value "999999" for --workers. Must be <='),
        ("up --http-port 99999", 'Invalid value "99999" for --http-port. Must be <='),
        ("up --kafka-port 70000", 'Invalid value "70000" for --kafka-port. Must be'),
        ("up --kafka-port -5", 'Invalid value "-5" for --kafka-port. Must be >= 0.'),
        (
            "up --http-port 65535 --ingress 2",
            "--http-port 65535 with --ingress 2 would need port 65536; the last is",
        ),
        (
            "up --http-port 9091 --ingress 2",
            "--http-port 9091 with --ingress 2 takes ports 9091 to 9092, which",
        ),
        (
            "up --ephemeral --data kept",
            "--ephemeral keeps nothing and --data keeps the queue: give one of them.",
        ),
        (
            "up --data file",
            "The data folder file cannot be used (File exists): name another one",
        ),
        (
            "up --data file/below",
            "The data folder file/below cannot be used (Not a directory)",
        ),
        (
            "up --models nowhere",
            "The models folder nowhere cannot be used (No such file or directory): cr",
        ),
        ("up --models file", "The models folder file cannot be used (Not a directory)"),
        ("up --bogus", "Unknown option: --bogus."),
        ("demo --connections 0", 'Invalid value "0" for --connections. Must be >= 1.'),
        ("infer", 'Command "infer" parameter MODEL requires an argument.'),
        ("infer m -i no-such-file", "no-such-file cannot be read: No such file"),
        ("infer m -i .", ". cannot be read: Is a directory."),
        ("infer m -i file", "file holds no JSON: 'utf-8' codec can't decode"),
        ("infer m -i {bad", "--input holds no JSON: Expecting property name"),
        ('infer m -i {"inputs":1}', "--input holds no request: a list"),
        ("infer m -i X=1 -i X=2", "input 'X' is given more than once."),
        ("infer m --url http://h:x", "--url 'http://h:x' is no address: write http:"),
        ("infer m --url http://h:99999", "--url 'http://h:99999' is no address"),
        ("infer m --url ftp://h", "--url 'ftp://h' is no address"),
        ("audit --from yesterday", "--from yesterday is no instant: write"),
        ("audit --to -2h", "--to -2h is not after --from -1h."),
        ("deadletters redrive", "name at least one request"),
        ("deadletters list --last 0", 'Invalid value "0" for --last. Must be >= 1.'),
        ("deadletters list --reason x", "Invalid value"),
        ("explain", 'Command "explain" parameter NAME requires an argument.'),
        ("topics extra", "`topics` takes no further argument: extra. See `headrace to"),
        ("jobs status a b c", "`jobs status` takes no further argument: b c. See"),
        ("replay --model m --from -1h --rate -1x", "--rate -1x is none: write orig"),
        ("topics --bootstrap h:99999", "--bootstrap: 'h:99999': a port is from 1 to"),
        ("simulate --workers 0", 'Invalid value "0" for --workers. Must be >= 1.'),
        ("simulate --seed -1", 'Invalid value "-1" for --seed. Must be >= 0.'),
        ("simulate --seconds nan", 'Invalid value "nan" for --seconds. Must be <='),
        ("simulate --load inf", "--load: Input should be a finite number"),
        ("simulate --alpha-ms -1", "--alpha-ms: Input should be greater than or"),
        ("simulate --sweep inf", "--sweep inf: say multiples of the load"),
        ("simulate --scenario file", "scenario file cannot be read: 'utf-8' codec"),
        (
            "simulate --report no/x.html",
            "The report no/x.html cannot be used (No such file or directory)",
        ),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_URL", NOWHERE)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(sys, "argv", ["headrace", *arguments.split()])
    (tmp_path / "file").write_bytes(b"\xe9x")

    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.startswith(f"headrace: {sentence}")
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["show", ""],
        ["show", " "],
        ["explain", ""],
        ["deadletters", "show", ""],
        ["deadletters", "redrive", "x", ""],
        ["tail", "--id", ""],
    ],
)
def test_an_empty_id_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", *command])

    with pytest.raises(SystemExit) as ended:
        main()

    said = "headrace: an id is needed, and this one is empty.\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, said)


def test_a_url_without_a_scheme_is_taken_for_http(tmp_path: Path) -> None:
    done = headrace("infer", "m", "--url", "127.0.0.1:9", "-i", "X=1", cwd=tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith(f"headrace: {NOWHERE} does not answer: ")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"<html>hello</html>", "answers, but not as an ingress does: JSON is malf"),
        (b'{"outputs": []}', "answers, but not as an ingress does: Object missing"),
    ],
)
def test_another_server_is_told_from_an_ingress(
    tmp_path: Path, body: bytes, sentence: str
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.handle_request).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = headrace(
            "infer", "m", "--url", url, "-i", '{"inputs": []}', cwd=tmp_path
        )

    assert done.returncode == 1
    assert done.stderr.startswith(f"headrace: {url} {sentence}")
    assert len(done.stderr.splitlines()) == 1


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with nobody_listens() as (_, port):
        done = headrace(
            *("up", "--ephemeral", "--http-port", "0"),
            cwd=tmp_path,
            environment={"KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"},
        )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"headrace: No Apache Kafka answers at 127.0.0.1:{port} (Connect to "
        f"ipv4#127.0.0.1:{port} failed: Connection refused): start it, or correct the "
        "address.\n"
    )


def test_a_stop_that_is_asked_for_before_it_is_ready_is_no_failure(
    tmp_path: Path,
) -> None:
    command = (sys.executable, "-m", "services.ctl", "up", "--ephemeral")
    # Takes connections and says nothing, so that the start waits.
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        subprocess.Popen(
            (*command, "--http-port", "0"),
            cwd=tmp_path,
            env={
                "PATH": "/usr/bin:/bin",
                "TMPDIR": str(tmp_path),
                "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{silent.getsockname()[1]}",
            },
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        silent.settimeout(60)
        with silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)

    assert process.returncode == 0
    assert said.endswith("Z stopped before it was ready\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "status"), [("up", 0), ("infer", 130)])
def test_ctrl_c_before_a_command_is_there_ends_up_as_it_ends_later(
    command: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_run", interrupted)
    monkeypatch.setattr(sys, "argv", ["headrace", command])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == status
    assert ("stopped" in capsys.readouterr().err) == (command == "up")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "HEADRACE_BUS__HISTORY_HOUR",
            "3",
            "HEADRACE_BUS__HISTORY_HOUR is not a setting: did you mean HEADRACE_BUS__H",
        ),
        (
            "HEADRACE_LIMITS__DRAIN_MS",
            "soon",
            "HEADRACE_LIMITS__DRAIN_MS=soon: Input should be a valid integer",
        ),
        (
            "HEADRACE_SCHEDULING__NOTHING",
            "1",
            "HEADRACE_SCHEDULING__NOTHING is not a setting: did you mean HEADRACE_SCH",
        ),
        (
            "HEADRACE_DEVICE__NOTHING",
            "1",
            "HEADRACE_DEVICE__NOTHING is not a setting: did you mean HEADRACE_DEVICE__",
        ),
    ],
)
def test_a_setting_of_a_service_is_refused_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["headrace", "up", "--ephemeral"])

    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert said.err.startswith(f"headrace: {sentence}")
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "KAFKA_BOOTSTRAP_SERVERS",
            "garbage:99999",
            "KAFKA_BOOTSTRAP_SERVERS: 'garbage:99999': a port is from 1 to 65535.",
        ),
        (
            "KAFKA_BOOTSTRAP_SERVERS",
            "a:1, b c",
            "KAFKA_BOOTSTRAP_SERVERS: 'b c' is no broker: write HOST:PORT.",
        ),
        ("HEADRACE_BUS__PREFX", "x", "HEADRACE_BUS__PREFX is not a setting: did you"),
    ],
)
def test_a_tool_refuses_a_variable_that_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["headrace", "topics"])

    with pytest.raises(SystemExit):
        main()

    said = capsys.readouterr().err
    assert said.startswith(f"headrace: {sentence}")
    assert len(said.splitlines()) == 1


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


def test_a_folder_of_links_for_all_is_refused_before_kafka_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "links").mkdir(mode=0o755)
    done = headrace(
        *("up", "--fused", "--http-port", "0", "--kafka-port", "0"),
        cwd=tmp_path,
        environment={"HEADRACE_FUSED__FOLDER": str(tmp_path / "links")},
    )
    assert done.returncode == 1
    assert "is not for this user alone" in done.stderr
    assert not (tmp_path / ".headrace" / "kafka").exists()
