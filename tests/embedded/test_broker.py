"""A real broker: start, stop, restart, and what a killed one leaves."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.embedded import EmbeddedKafka, KafkaSettings, storage
from headrace.embedded.broker import _new_cluster_id
from headrace.embedded.ports import free_port
from headrace.embedded.probe import answers_metadata
from headrace.errors import SetupError
from tests.freezing import freeze

pytestmark = pytest.mark.kafka

# Starts a broker, prints "pid port" and waits, to be killed.
_HOLDER = """
import sys, time
from pathlib import Path
from headrace.embedded import EmbeddedKafka, KafkaSettings
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
running = EmbeddedKafka(KafkaSettings(folder=folder)).start()
print(running.pid, running.bootstrap_servers, flush=True)
time.sleep(600)
"""


def address(bootstrap_servers: str) -> tuple[str, int]:
    host, port = bootstrap_servers.split(":")
    return host, int(port)


def topics(bootstrap_servers: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    return set(admin.list_topics(timeout=30).topics)


def create_topic(bootstrap_servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def ends_within(pid: int, seconds: float) -> bool:
    try:
        psutil.Process(pid).wait(seconds)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def start_holder(*arguments: str) -> tuple["subprocess.Popen[str]", int, str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, *arguments], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout:
        pid, bootstrap_servers = holder.stdout.readline().split()
    return holder, int(pid), bootstrap_servers


def test_what_was_written_is_there_after_a_clean_restart(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(KafkaSettings(folder=tmp_path))
    first = kafka.start()
    create_topic(first.bootstrap_servers, "kept")
    kafka.stop()
    assert not answers_metadata(*address(first.bootstrap_servers))
    second = kafka.start()
    try:
        assert topics(second.bootstrap_servers) == {"kept"}
        assert second.bootstrap_servers == first.bootstrap_servers
        assert 0 < second.ready_s < 110
    finally:
        kafka.stop()


def test_a_temporary_folder_is_gone_after_the_end() -> None:
    with EmbeddedKafka(KafkaSettings()) as running:
        folder = running.log.parent
        assert folder.is_dir()
    assert not folder.exists()


def test_a_killed_broker_is_noticed_and_its_folder_serves_again(
    tmp_path: Path,
) -> None:
    kafka = EmbeddedKafka(KafkaSettings(folder=tmp_path))
    running = kafka.start()
    create_topic(running.bootstrap_servers, "kept")
    os.kill(running.pid, signal.SIGKILL)
    assert kafka.wait(30) == -signal.SIGKILL
    with kafka as again:
        assert topics(again.bootstrap_servers) == {"kept"}
        assert again.pid != running.pid


def test_a_broker_ends_with_its_killed_parent_and_leaves_the_folder_free(
    tmp_path: Path,
) -> None:
    holder, pid, _ = start_holder(str(tmp_path))
    holder.kill()
    holder.wait()
    with EmbeddedKafka(KafkaSettings(folder=tmp_path)) as running:
        assert running.pid != pid
    assert ends_within(pid, 20)


def test_a_folder_in_use_is_refused_with_its_user(tmp_path: Path) -> None:
    with EmbeddedKafka(KafkaSettings(folder=tmp_path)) as running:
        second = EmbeddedKafka(KafkaSettings(folder=tmp_path))
        with pytest.raises(SetupError, match=f"in use by process {running.pid}: stop"):
            second.start()
        assert answers_metadata(*address(running.bootstrap_servers))


@pytest.mark.parametrize("ends_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_whose_parent_is_gone_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_by: signal.Signals
) -> None:
    """One that is frozen by force."""
    orphan = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; print(flush=True); time.sleep(600)",
            "kafka.Kafka",
        ],
        pass_fds=[(lock := storage.FolderLock(tmp_path)).fd],
        stdout=subprocess.PIPE,
    )
    assert orphan.stdout is not None
    with orphan.stdout:
        orphan.stdout.readline()
    lock.note_broker(orphan.pid)
    lock.release()
    note = (tmp_path / "lock").read_text()
    (tmp_path / "lock").write_text(note.replace(str(os.getpid()), "4194305"))
    if ends_by is signal.SIGKILL:
        monkeypatch.setattr(storage, "_LEFTOVER_ENDS_WITHIN_S", 0.1)
        freeze(orphan.pid)
    storage.FolderLock(tmp_path).release()
    assert orphan.wait(20) == -ends_by


def test_leftover_temporary_folders_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    an_hour_ago = time.time() - 3600
    for name in ("dead", "alive", "young"):
        folder = tmp_path / f"{storage.EPHEMERAL_PREFIX}{name}"
        folder.mkdir()
        (folder / "lock").touch()
        if name != "young":
            os.utime(folder, (an_hour_ago, an_hour_ago))
    alive = tmp_path / f"{storage.EPHEMERAL_PREFIX}alive"
    lock = storage.FolderLock(alive)
    os.utime(alive, (an_hour_ago, an_hour_ago))
    storage.sweep_ephemeral()
    lock.release()
    left = {
        path.name.removeprefix(storage.EPHEMERAL_PREFIX) for path in tmp_path.iterdir()
    }
    assert left == {"alive", "young"}


def test_a_taken_port_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        kafka = EmbeddedKafka(KafkaSettings(folder=tmp_path, port=port))
        expected = rf"Port {port} is taken by process {os.getpid()} .*--kafka-port"
        with pytest.raises(SetupError, match=expected):
            kafka.start()


def test_a_given_port_is_used(tmp_path: Path) -> None:
    # One that the kernel gives to no connection of others meanwhile.
    port = free_port("127.0.0.1")
    with EmbeddedKafka(KafkaSettings(folder=tmp_path, port=port)) as running:
        assert running.bootstrap_servers == f"127.0.0.1:{port}"


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    with EmbeddedKafka(KafkaSettings(folder=tmp_path)):
        pass
    (tmp_path / "storage" / "version.json").write_text('{"kafka": "3.9.1"}')
    kafka = EmbeddedKafka(KafkaSettings(folder=tmp_path))
    with pytest.raises(SetupError, match=r"written by Apache Kafka 3\.9\.1.*delete"):
        kafka.start()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("version.json", "{"),
        ("version.json", "[]"),
        ("log/meta.properties", "node.id=1\n"),
        ("log/meta.properties", None),
    ],
)
def test_a_damaged_folder_is_refused(
    tmp_path: Path, file: str, content: str | None
) -> None:
    log = tmp_path / "storage" / "log"
    log.mkdir(parents=True)
    (tmp_path / "storage" / "version.json").write_text('{"kafka": "4.4.0"}')
    (log / "meta.properties").write_text("cluster.id=x\n")
    if content is None:
        (tmp_path / "storage" / file).unlink()
    else:
        (tmp_path / "storage" / file).write_text(content)
    with pytest.raises(SetupError, match="is damaged .* choose another folder"):
        EmbeddedKafka(KafkaSettings(folder=tmp_path)).start()


def test_a_broker_that_dies_at_the_start_says_why_and_where_to_look(
    tmp_path: Path,
) -> None:
    kafka = EmbeddedKafka(KafkaSettings(folder=tmp_path))
    with kafka:
        pass
    meta = tmp_path / "storage" / "log" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    with pytest.raises(
        SetupError, match="ended with status 1 .*Stored node id 7"
    ) as refused:
        kafka.start()
    assert str(tmp_path / "kafka.log") in str(refused.value)


def test_a_start_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "storage.new" / "log").mkdir(parents=True)
    with EmbeddedKafka(KafkaSettings(folder=tmp_path)) as running:
        assert answers_metadata(*address(running.bootstrap_servers))


def test_no_cluster_id_begins_like_an_option() -> None:
    identities = {_new_cluster_id() for _ in range(2000)}
    assert len(identities) == 2000
    assert {len(identity) for identity in identities} == {22}
    assert not [identity for identity in identities if identity.startswith("-")]


def test_java_home_without_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="JAVA_HOME is .* is no program: correct it"):
        EmbeddedKafka(KafkaSettings(folder=tmp_path)).start()


def test_a_java_that_is_too_old_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="Java 8, and Apache Kafka needs 17 or newer"):
        EmbeddedKafka(KafkaSettings(folder=tmp_path / "data")).start()


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="cannot be used"):
        EmbeddedKafka(KafkaSettings(folder=tmp_path / "file" / "data")).start()
