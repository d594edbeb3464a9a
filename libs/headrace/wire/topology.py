"""Topics to create, read from ``asyncapi.yaml``, which is the one source for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from math import prod
from string import Formatter
from typing import Any, Protocol

import yaml

from headrace.wire.records import NewTopic
from headrace.wire.topics import Topics

__all__ = ["TopicSizes", "base_topics", "document", "model_topics", "results_topic"]

_OF_INSTALLATION = frozenset({"prefix", "pool", "cell"})


class TopicSizes(Protocol):
    """The settings that the document refers to by name (the group ``bus``)."""

    @property
    def lanes(self) -> int: ...
    @property
    def worker_slots(self) -> int: ...
    @property
    def ingress_slots(self) -> int: ...
    @property
    def history_hours(self) -> int: ...
    @property
    def history_bytes(self) -> int | None: ...
    @property
    def payload_bytes_max(self) -> int: ...
    @property
    def batch_bytes_max(self) -> int: ...


def base_topics(topics: Topics, sizes: TopicSizes) -> list[NewTopic]:
    """Those that exist before any model does."""
    return _topics(set(), topics._asdict(), sizes)


def model_topics(topics: Topics, model: str, sizes: TopicSizes) -> list[NewTopic]:
    """Those of one model, which a worker creates before it announces ``ready``."""
    return _topics({"model"}, {**topics._asdict(), "model": model}, sizes)


def results_topic(
    topics: Topics,
    tenant: str,
    job: str,
    sizes: TopicSizes,
    *,
    partitions: int | None = None,
) -> NewTopic:
    """The one of a reader of plain replies. ``partitions``: other than the document's;
    replies in one share their produce requests, which several readers need not want.
    """
    names = {**topics._asdict(), "tenant": tenant, "job": job}
    (topic,) = _topics({"tenant", "job"}, names, sizes)
    return topic if partitions is None else topic._replace(partitions=partitions)


@cache
def document() -> dict[str, Any]:
    """The AsyncAPI document, which lies beside this module as a link to ``schemas/``
    in a checkout and as a file in a wheel."""
    text = (files("headrace.wire") / "asyncapi.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def _topics(
    own: set[str], names: Mapping[str, str], sizes: TopicSizes
) -> list[NewTopic]:
    """The channels whose addresses have these parameters beside the installation's."""
    found = []
    for channel in document()["channels"].values():
        used = {name for _, name, _, _ in Formatter().parse(channel["address"]) if name}
        if used - _OF_INSTALLATION == own:
            found.append(_topic(channel, names, sizes))
    return found


def _topic(
    channel: Mapping[str, Any], names: Mapping[str, str], sizes: TopicSizes
) -> NewTopic:
    binding = channel["bindings"]["kafka"]
    config = {
        name: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in binding["topicConfiguration"].items()
    }
    partitions = binding["partitions"]
    for name, expression in binding.get("x-by-setting", {}).items():
        value = _evaluated(expression, sizes)
        if name == "partitions":
            partitions = value
        elif value is not None:
            config[name] = str(value)
    return NewTopic(channel["address"].format_map(names), partitions, config)


def _evaluated(expression: str, sizes: TopicSizes) -> int | None:
    """A sum of products of settings and numbers; None where a setting is unset."""
    terms = [
        [
            int(factor) if factor.isdecimal() else getattr(sizes, factor)
            for factor in term.split(" * ")
        ]
        for term in expression.split(" + ")
    ]
    if any(None in term for term in terms):
        return None
    return sum(map(prod, terms))
