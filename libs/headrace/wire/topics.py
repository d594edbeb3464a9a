"""The only place that spells topic names and numbers partitions.

Names, partitions and policies are those of ``schemas/asyncapi.yaml``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from headrace.domain import Priority
from headrace.errors import RequestError

__all__ = [
    "JOB_ASYNC",
    "JOB_KEYED",
    "KEPT_JOBS",
    "NAME_PATTERN",
    "PRIORITIES",
    "RESERVED_MODELS",
    "TopicKind",
    "Topics",
    "checked_name",
]

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""A model, tenant, job, pool or cell name; no dot, so that a topic name parses."""

PRIORITIES = len(Priority)

JOB_ASYNC = "async"
JOB_KEYED = "keyed"
KEPT_JOBS = frozenset({JOB_ASYNC, JOB_KEYED})
"""Jobs whose results are answers that an ingress gives to whoever asks for them."""

RESERVED_MODELS = frozenset({"stats"})
"""Names that a path of the protocol already takes (``/v2/models/stats``)."""


def checked_name(kind: str, name: str) -> str:
    """``name``, when it may stand in a topic; otherwise a sentence that says why not.

    Raises :class:`headrace.errors.RequestError`.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise RequestError(
            f"{kind} name {name[:120]!r} is not allowed: it must match "
            f"{NAME_PATTERN.pattern}"
        )
    if kind == "model" and name in RESERVED_MODELS:
        raise RequestError(f"model name {name!r} is reserved")
    return name


class TopicKind(StrEnum):
    """The word that follows the prefix in a topic's name."""

    REQUESTS = "requests"
    LANES = "lanes"
    BATCHES = "batches"
    COMPLETIONS = "completions"
    REPLIES = "replies"
    RESULTS = "results"
    DEAD_LETTERS = "deadletters"
    CONTROL = "control"
    STATUS = "status"


class Topics(NamedTuple):
    """The topics of one installation, one pool and one cell."""

    prefix: str = "headrace"
    pool: str = "default"
    cell: str = "default"

    def requests(self, model: str) -> str:
        return f"{self.prefix}.requests.{model}"

    def model_of(self, requests_topic: str) -> str:
        """The inverse of :meth:`requests`."""
        return requests_topic[len(self.prefix) + len(".requests.") :]

    def kind_of(self, topic: str) -> TopicKind | None:
        """None for a topic that is not of this installation."""
        beginning = f"{self.prefix}."
        if not topic.startswith(beginning):
            return None
        try:
            return TopicKind(topic[len(beginning) :].partition(".")[0])
        except ValueError:
            return None

    def dead_letters(self, model: str) -> str:
        return f"{self.prefix}.deadletters.{model}"

    def results(self, tenant: str, job: str) -> str:
        return f"{self.prefix}.results.{tenant}.{job}"

    @property
    def lanes(self) -> str:
        return f"{self.prefix}.lanes.{self.pool}"

    @property
    def batches(self) -> str:
        return f"{self.prefix}.batches.{self.pool}"

    @property
    def completions(self) -> str:
        return f"{self.prefix}.completions.{self.pool}"

    @property
    def replies(self) -> str:
        return f"{self.prefix}.replies.{self.cell}"

    @property
    def status(self) -> str:
        return f"{self.prefix}.status"

    @property
    def control_models(self) -> str:
        return f"{self.prefix}.control.models"

    @property
    def control_jobs(self) -> str:
        return f"{self.prefix}.control.jobs"

    @property
    def lane_group(self) -> str:
        """The consumer group of the pool's lane leaders."""
        return f"{self.prefix}.lanes.{self.pool}"

    def is_results_topic(self, topic: str) -> bool:
        """Whether replies to it are kept for whoever asks later, instead of going to
        an ingress that waits."""
        return topic.startswith(f"{self.prefix}.results.")

    def is_kept_topic(self, topic: str) -> bool:
        """Whether ingresses give answers out of it (:data:`KEPT_JOBS`)."""
        return self.is_results_topic(topic) and topic.rpartition(".")[2] in KEPT_JOBS

    def is_reply_topic(self, topic: str) -> bool:
        """Whether a request may name it as its reply address."""
        return topic.startswith((f"{self.prefix}.replies.", f"{self.prefix}.results."))

    def takes_envelopes(self, topic: str) -> bool:
        """Whether replies to many requests may share a record of ``topic``."""
        return topic.startswith(f"{self.prefix}.replies.")

    @staticmethod
    def request_partition(lane: int, priority: Priority) -> int:
        """Lane-major, so that adding lanes only appends partitions."""
        return lane * PRIORITIES + priority

    @staticmethod
    def lane_and_priority(partition: int) -> tuple[int, Priority]:
        """The inverse of :meth:`request_partition`."""
        lane, priority = divmod(partition, PRIORITIES)
        return lane, Priority(priority)
