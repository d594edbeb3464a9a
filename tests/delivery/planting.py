"""Runs one test against a module that is changed as it is imported, in a process that
has not imported it yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.delivery.rules import Rule

__all__ = ["run_without"]


class _Changed(SourceFileLoader):
    """A module without the rule."""

    rule: Rule

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - its own
        text = Path(self.path).read_text()
        assert text.count(self.rule.right) == 1, "the list is behind the code"
        return compile(
            text.replace(self.rule.right, self.rule.wrong), self.path, "exec"
        )


class _Finder:
    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != self._rule.module:
            return None
        spec = PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader = _Changed(name, spec.origin)
        loader.rule = self._rule
        spec.loader = loader
        return spec


def run_without(rule: Rule, told: Path) -> None:
    """Ends the process with pytest's exit status; what it said is in ``told``."""
    assert rule.module not in sys.modules
    sys.meta_path.insert(0, _Finder(rule))
    for stream in (1, 2):
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    status = pytest.main(
        [
            *("-x", "-q", "-p", "no:cacheprovider", "--timeout", "60"),
            # Hypothesis is there before pytest could rewrite its assertions.
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
            rule.noticed_by,
        ]
    )
    sys.stdout.flush()
    os._exit(status)
