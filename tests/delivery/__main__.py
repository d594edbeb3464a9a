"""Takes each rule that the protocol marks ◆ out of the code, and sees its test fail."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.delivery.planting import run_without
from tests.delivery.rules import RULES, Rule


def main(words: Sequence[str]) -> int:
    """``words``: only the rules with one of them in their mark or their test."""
    # An interpreter for each that imports pytest and Hypothesis would take most of
    # the time.
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["pytest", "hypothesis.internal.conjecture.engine"])
    rules = [rule for rule in RULES if not words or _has(rule, words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, rule in enumerate(rules):
            told = Path(folder) / str(number)
            run = forks.Process(target=run_without, args=(rule, told))
            run.start()
            run.join()
            is_noticed = (
                run.exitcode == pytest.ExitCode.TESTS_FAILED
                and " failed" in told.read_text()
            )
            missed += not is_noticed
            print(_line(rule, is_noticed=is_noticed), flush=True)
            if not is_noticed:
                print(told.read_text()[-2000:])
    print(f"{len(rules)} taken out, {len(rules) - missed} noticed")
    return 1 if missed else 0


def _has(rule: Rule, words: Sequence[str]) -> bool:
    return any(word in f"{rule.mark} {rule.noticed_by}" for word in words)


def _line(rule: Rule, *, is_noticed: bool) -> str:
    words = " ".join(rule.mark.replace("*", "").split())
    said = "fails" if is_noticed else "DOES NOT FAIL"
    return f"{words:<32} {rule.noticed_by.rpartition('::')[2]} {said}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
