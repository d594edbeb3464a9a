"""The broker's settings and the JVM's: small, single-node, loopback alone."""

from pathlib import Path

__all__ = ["FORMAT_OPTIONS", "HOST", "JVM_OPTIONS", "server_properties"]

HOST = "127.0.0.1"
# C2 stays on and one thread collects garbage: with `-XX:TieredStopAtLevel=1` the
# broker takes twice the CPU per request.
JVM_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseParallelGC",
    "-XX:ParallelGCThreads=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
FORMAT_OPTIONS = (
    "-Xmx128m",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_FRAMING_BYTES = 1024 * 1024
_SEGMENT_BYTES = 64 * 1024 * 1024
# The default of 128 MB does not fit a small heap.
_CLEANER_BUFFER_BYTES = 2 * 1024 * 1024


def server_properties(
    *,
    port: int,
    advertised_port: int,
    controller_port: int,
    log_folder: Path,
    batch_bytes_max: int,
) -> str:
    """The text of ``server.properties``.

    A record set is refused when it exceeds ``message.max.bytes`` or a segment, so
    both follow ``batch_bytes_max``. How long records are kept is each topic's own.
    """
    record_set_max = batch_bytes_max + _FRAMING_BYTES
    broker, controller = f"{HOST}:{port}", f"{HOST}:{controller_port}"
    advertised = f"{HOST}:{advertised_port}"
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": controller,
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{advertised},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_folder),
        "auto.create.topics.enable": "false",
        "message.max.bytes": record_set_max,
        "replica.fetch.max.bytes": record_set_max,
        "log.segment.bytes": max(_SEGMENT_BYTES, 2 * record_set_max),
        "log.cleaner.threads": 1,
        "log.cleaner.dedupe.buffer.size": _CLEANER_BUFFER_BYTES,
        "num.network.threads": 1,
        "num.io.threads": 2,
        "background.threads": 2,
        # A killed broker may register again once its session is over.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 200,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
    }
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        for setting in ("num.partitions", "replication.factor", "min.isr"):
            settings[f"{topic}.{setting}"] = 1
    return "".join(f"{name}={value}\n" for name, value in settings.items())
