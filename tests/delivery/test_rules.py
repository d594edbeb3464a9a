"""The list of rules is whole, and names code and tests that are there.

``.venv/bin/python -m tests.delivery`` takes them out one by one.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.delivery.rules import RULES, Rule

ROOT = Path(__file__).parents[2]
README = (ROOT / "libs/headrace/delivery/README.md").read_text()
BEGIN = "\n## Time\n"
"""Before it the mark is explained."""


def test_every_marked_rule_is_in_the_list() -> None:
    left = README[README.index(BEGIN) :]
    for mark in {rule.mark for rule in RULES}:
        assert left.count(mark) == 1, f"{mark!r} is not in the protocol, or twice"
        left = left.replace(mark, "")

    assert "◆" not in left, left[max(0, left.find("◆") - 80) :][:160]


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: rule.noticed_by.split("_", 1)[1]
)
def test_a_rule_names_a_line_and_a_test(rule: Rule) -> None:
    spec = find_spec(rule.module)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).read_text().count(rule.right) == 1
    path, _, name = rule.noticed_by.partition("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name in {
        each.name for each in tree.body if isinstance(each, ast.FunctionDef)
    }


@pytest.mark.parametrize("number", range(10, 21))
def test_every_promise_of_the_protocol_is_named_by_a_test(number: int) -> None:
    told = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and f"D{number}" in path.read_text()
    ]
    assert told, f"no test says D{number}"
