"""Which records a command is about, as its options say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace.errors import RequestError
from headrace.replay import Condition
from services.ctl.errors import UsageError

__all__ = ["Choice", "conditions_of"]

PriorityName = Literal["realtime", "interactive", "standard", "bulk"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Options that several commands share."""

    tenant: str | None = None
    """Of this tenant alone."""

    priority: PriorityName | None = None
    """Of this priority alone."""

    where: Annotated[Sequence[str], Parameter(negative=(), show_default=False)] = ()
    """NAME OP VALUE, such as "rows>=4" or "status!=ok"; may be repeated, and all must
    hold. NAME: id, tenant, version, priority, rows, status (ok, or the reason),
    latency_ms, partition, offset, header.NAME; of tail also kind, model, topic. OP: =
    != < <= > >= and ~ !~ for a regular expression."""

    def conditions(self, known: frozenset[str]) -> list[Condition]:
        """Over facts of these names. Raises UsageError."""
        named = {"tenant": self.tenant, "priority": self.priority}
        equal = [
            Condition(name, "=", value)
            for name, value in named.items()
            if value is not None
        ]
        return [*conditions_of(self.where, known), *equal]


def conditions_of(texts: Sequence[str], known: frozenset[str]) -> list[Condition]:
    """Raises UsageError."""
    try:
        return [Condition.parse(text, known) for text in texts]
    except RequestError as error:
        raise UsageError(f"--where {error}.") from error
