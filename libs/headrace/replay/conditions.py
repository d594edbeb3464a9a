"""What somebody wants of records, in a form that fits into one option."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.errors import RequestError

__all__ = ["Condition", "Facts"]

Fact = str | int | float | None
Facts = Mapping[str, Fact]
"""What is known of a record by name; None, or absent: nothing is."""

_CONDITION = re.compile(r"\s*([A-Za-z][\w.:-]*)\s*(!=|<=|>=|!~|=|<|>|~)\s*(.*?)\s*")

_ORDERED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """``NAME OP VALUE``. ``=`` and ``!=`` compare numbers as numbers and the rest as
    text, ``<`` and its kin numbers alone, ``~`` and ``!~`` look for a regular
    expression. Of what is not known, ``!=`` and ``!~`` hold and the others do not."""

    name: str
    op: str
    value: str

    @classmethod
    def parse(cls, text: str, known: frozenset[str]) -> Condition:
        """``known``: the names that may stand in it; one that ends with a dot stands
        for all that begin so.

        Raises :class:`headrace.errors.RequestError`.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise RequestError(
                f"{text!r} is no condition: write NAME OP VALUE, with one of "
                "= != < <= > >= ~ !~"
            )
        condition = cls(*found.groups())
        name = condition.name
        if name not in known and f"{name.partition('.')[0]}." not in known:
            raise RequestError(
                f"{text!r}: there is no {name!r}, only {', '.join(sorted(known))}"
            )
        if condition.op in _ORDERED and _number(condition.value) is None:
            raise RequestError(f"{text!r}: {condition.op} takes a number")
        if condition.op in {"~", "!~"}:
            try:
                re.compile(condition.value)
            except re.error as error:
                raise RequestError(f"{text!r}: {error}") from error
        return condition

    def holds(self, facts: Facts) -> bool:
        fact = facts.get(self.name)
        match self.op:
            case "=":
                return fact is not None and self._is_equal(fact)
            case "!=":
                return fact is None or not self._is_equal(fact)
            case "~":
                return fact is not None and self._is_found(fact)
            case "!~":
                return fact is None or not self._is_found(fact)
            case _:
                number, limit = _number(fact), _number(self.value)
                if number is None or limit is None:
                    return False
                return _ORDERED[self.op](number, limit)

    def _is_equal(self, fact: str | float) -> bool:
        number = None if isinstance(fact, str) else _number(self.value)
        return str(fact) == self.value if number is None else fact == number

    def _is_found(self, fact: str | float) -> bool:
        return re.search(self.value, str(fact)) is not None


def _number(value: Fact) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except ValueError:
        return None
