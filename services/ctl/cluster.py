"""What a cluster has of Headrace's, so that a name that is not there is told from one
with nothing to tell."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from headrace.broker import KafkaAdmin, KafkaConnection
from headrace.wire import TopicKind, Topics
from services.ctl.errors import UsageError
from services.ctl.where import kafka, topic_pool, topic_prefix

__all__ = ["Cluster", "check_names", "check_partition", "reached"]

_LOOK_UP_S = 10.0


class Cluster(NamedTuple):
    """A Kafka that answers and the topics of one installation that it has."""

    connection: KafkaConnection
    topics: Topics


def reached(
    bootstrap: str | None,
    data: Path | None,
    client_id: str = "headrace-ctl",
    *,
    prefix: str | None = None,
    pool: str | None = None,
    models: Collection[str] = (),
) -> Cluster:
    """Raises as :func:`services.ctl.where.kafka` and :func:`check_names`."""
    topics = Topics(prefix or topic_prefix(), pool or topic_pool())
    connection = kafka(bootstrap, data, client_id)
    there = KafkaAdmin(connection).topics(_LOOK_UP_S)
    where = connection.bootstrap_servers
    check_names(topics, there, where, pool=pool, models=models)
    return Cluster(connection, topics)


def check_names(
    topics: Topics,
    there: Collection[str],
    where: str,
    *,
    pool: str | None = None,
    models: Collection[str] = (),
) -> None:
    """``there``: the topics of the cluster at ``where``; ``pool``: as it was asked for.

    Raises UsageError for the first name that no topic has, with those that are there.
    """
    if not any(topics.kind_of(topic) for topic in there):
        marks = (Topics("").control_models, Topics("").status)
        known = {
            topic.removesuffix(mark)
            for topic in there
            for mark in marks
            if topic.endswith(mark)
        }
        raise UsageError(
            f"No topic at {where} begins with {topics.prefix!r}: "
            f"{_instead('prefix', 'prefixes', known)}."
        )
    if pool is not None and topics.lanes not in there:
        known = _last_words(topics, there, TopicKind.LANES)
        raise UsageError(
            f"There is no pool {pool!r} at {where}: {_instead('pool', 'pools', known)}."
        )
    for model in models:
        if topics.requests(model) not in there:
            known = _last_words(topics, there, TopicKind.REQUESTS)
            raise UsageError(
                f"There is no model {model!r} at {where}: "
                f"{_instead('model', 'models', known)}."
            )


def check_partition(topic: str, number: int, count: int) -> None:
    """Raises UsageError where a topic of ``count`` partitions has no such one."""
    if count == 0:
        raise UsageError(f"There is no topic {topic}.")
    if number >= count:
        has = "the partition 0" if count == 1 else f"the partitions 0 to {count - 1}"
        raise UsageError(f"{topic} has no partition {number}: it has {has}.")


def _last_words(topics: Topics, there: Collection[str], kind: TopicKind) -> set[str]:
    beginning = f"{topics.prefix}.{kind}."
    return {
        topic.removeprefix(beginning) for topic in there if topic.startswith(beginning)
    }


def _instead(one: str, several: str, known: Collection[str]) -> str:
    if not known:
        return f"it has no {one} of Headrace yet"
    what = one if len(known) == 1 else several
    return f"it has the {what} {', '.join(sorted(known))}"
