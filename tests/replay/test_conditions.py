"""Conditions on what is known of a record."""

from __future__ import annotations

import operator
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.replay import Condition

KNOWN = frozenset({"rows", "status", "tenant", "header."})
FACTS = {"rows": 4, "status": "ok", "tenant": None, "header.x-team": "red 1"}
NUMBERS = st.integers(-3, 3) | st.floats(-3, 3)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("rows=4", True),
        ("rows = 4.0", True),
        ("rows!=4", False),
        ("rows=04x", False),
        ("rows>3", True),
        ("rows>=4", True),
        ("rows<4", False),
        ("status=ok", True),
        ("status!=ok", False),
        ("status~^o", True),
        ("status!~^o", False),
        ("status>1", False),
        ("tenant=acme", False),
        ("tenant!=acme", True),
        ("tenant~.", False),
        ("tenant!~.", True),
        ("tenant<1", False),
        ("header.x-team=red 1", True),
        ("header.absent=1", False),
        ("header.absent!=1", True),
    ],
)
def test_a_condition_holds_of_what_is_known(text: str, *, holds: bool) -> None:
    assert Condition.parse(text, KNOWN).holds(FACTS) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rows", "write NAME OP VALUE"),
        ("=4", "write NAME OP VALUE"),
        ("row=4", "there is no 'row', only header., rows, status, tenant"),
        ("headers.x=4", "there is no 'headers.x'"),
        ("rows>many", "> takes a number"),
        ("status~(", "missing )"),
    ],
)
def test_what_is_no_condition_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=re.escape(said)):
        Condition.parse(text, KNOWN)


@given(NUMBERS, NUMBERS)
def test_numbers_are_compared_as_numbers(fact: float, value: float) -> None:
    for op, compare in {
        "=": operator.eq,
        "!=": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }.items():
        condition = Condition.parse(f"rows{op}{value!r}", KNOWN)
        assert condition.holds({"rows": fact}) is compare(fact, value)


@given(st.sampled_from(["=", "~"]), st.sampled_from(["ok", "3", "3.0"]))
def test_an_operator_and_its_negation_never_agree(op: str, value: str) -> None:
    for fact in (None, "ok", "3", 3, 3.5):
        facts = {"rows": fact}
        one = Condition.parse(f"rows{op}{value}", KNOWN).holds(facts)
        other = Condition.parse(f"rows!{op}{value}", KNOWN).holds(facts)
        assert one is not other
