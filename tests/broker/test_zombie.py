"""A frozen member on a real Kafka: what A2 promises and what it does not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.broker import Committed, TopicPartition
from tests.broker.bench import PATIENCE_S, KafkaBench, Lanes, make_topic, serve
from tests.freezing import freeze

pytestmark = pytest.mark.kafka

MEMBER = """
import sys
from headrace.broker import Committed, TopicPartition
from tests.broker.bench import KafkaBench, Lanes, PATIENCE_S

bench, lanes = KafkaBench(sys.argv[1], sys.argv[2]), Lanes()
leader = bench.leader("former-0", lanes)
one = {TopicPartition(sys.argv[2] + "requests", 0): Committed(1, "zombie")}
while len(lanes.owned) < 2:
    leader.poll(0.01)
print("owner", leader.commit_now(one, PATIENCE_S), flush=True)
sys.stdin.readline()
print("thawed", leader.commit_now(one, PATIENCE_S), flush=True)
while ("lost", {0, 1}) not in lanes.heard:
    leader.poll(0.01)
print("told", flush=True)
"""


@pytest.fixture
def member(kafka: str, prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the lanes."""
    bench = KafkaBench(kafka, prefix)
    make_topic(bench, "lanes", 2)
    make_topic(bench, "requests")
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, kafka, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def test_a_frozen_member_loses_its_lanes_and_its_commits(
    kafka: str, prefix: str, member: subprocess.Popen[str]
) -> None:
    assert member.stdout
    assert member.stdin
    assert member.stdout.readline() == "owner None\n"
    bench, lanes = KafkaBench(kafka, prefix), Lanes()
    freeze(member.pid)
    member.stdin.write("\n")
    member.stdin.flush()

    leader = bench.leader("former-1", lanes)
    serve([leader], lambda: lanes.owned == {0, 1})
    one = TopicPartition(f"{prefix}requests", 0)
    assert leader.commit_now({one: Committed(5, "successor")}, PATIENCE_S) is None
    os.kill(member.pid, signal.SIGCONT)

    assert member.stdout.readline() == "thawed not_member\n"
    assert leader.committed([one], PATIENCE_S) == {one: Committed(5, "successor")}
    assert member.stdout.readline() == "told\n"
    leader.close()
