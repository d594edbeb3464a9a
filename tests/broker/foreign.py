"""A record as only a foreign client writes it: a header's name is not UTF-8."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping

import aiokafka


class UnreadableName(str):
    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return b"\xff\xfe"


def write_unreadable(
    bootstrap_servers: str,
    topic: str,
    value: bytes,
    headers: Mapping[str, str] | None = None,
    partition: int = 0,
) -> None:
    """Besides ``headers`` it has one whose name nobody can decode."""
    # Compiled, the client takes names that it can check alone.
    subprocess.run(
        [
            *(sys.executable, "-m", __name__, bootstrap_servers, topic),
            *(str(partition), value.hex(), json.dumps(dict(headers or {}))),
        ],
        env={**os.environ, "AIOKAFKA_NO_EXTENSIONS": "1"},
        check=True,
        timeout=60,
    )


async def _write(servers: str, topic: str, partition: str, *content: str) -> None:
    value, headers = bytes.fromhex(content[0]), json.loads(content[1])
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()
    try:
        await producer.send_and_wait(
            topic,
            value,
            # A compacted topic takes no record without.
            key=b"foreign",
            partition=int(partition),
            headers=[
                *((name, text.encode()) for name, text in headers.items()),
                (UnreadableName("name"), b"v"),
            ],
        )
    finally:
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:]))
