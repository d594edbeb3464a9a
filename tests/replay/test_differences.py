"""What was answered then against what is answered now."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Tensor
from headrace.replay import (
    Allowed,
    Comparison,
    Differences,
    Gate,
    Replayed,
    Verdict,
    judged,
)
from headrace.replay import differences as module
from tests.replay.builders import SERVED, labels, recorded, replayed, scores

THEN = (labels(3, 5), scores([0.1, 0.9], [0.8, 0.2]))


def compared(*taken: Replayed, allowed: Allowed = Allowed()) -> Differences:  # noqa: B008 - immutable
    comparison = Comparison(SERVED, default=allowed)
    for each in taken:
        comparison.take(each)
    return comparison.differences()


def test_the_same_answers_are_identical_whatever_their_order() -> None:
    found = compared(replayed(recorded(*THEN), *reversed(THEN)))

    assert (found.compared, found.identical, found.within) == (1, 1, 1)
    assert {name: each.rows for name, each in found.outputs.items()} == {
        "label": 2,
        "scores": 2,
    }
    assert judged(found, Gate(agreement=1.0)) == (Verdict.PASS, [])


def test_a_request_is_within_when_every_row_of_every_output_is() -> None:
    near = scores([0.1, 0.9], [0.80001, 0.2])
    far = scores([0.1, 0.9], [0.7, 0.3])
    one, two, three = (
        replayed(recorded(*THEN, offset=each), labels(3, 5), now)
        for each, now in enumerate((near, far, THEN[1]))
    )
    wrong = replayed(recorded(*THEN, offset=9), labels(3, 6), THEN[1])

    found = compared(one, two, three, wrong)

    assert (found.compared, found.identical, found.within) == (4, 1, 2)
    assert found.outputs["label"].agreement == 7 / 8
    assert found.outputs["scores"].agreement == 1.0
    assert compared(two, allowed=Allowed(absolute=0.11)).within == 1
    assert compared(two, allowed=Allowed(relative=0.11)).within == 0
    assert compared(wrong, allowed=Allowed(absolute=5)).within == 0


def test_versions_that_answered_then_are_told_apart() -> None:
    found = compared(
        replayed(recorded(*THEN, version="1"), *THEN),
        replayed(recorded(*THEN, version="2"), labels(0, 0), THEN[1]),
        replayed(recorded(*THEN, version="2"), *THEN),
    )

    assert {
        version: (each.compared, each.identical)
        for version, each in found.versions.items()
    } == {"1": (1, 1), "2": (2, 1)}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ((labels(3, 5),), "the output 'scores' is missing now"),
        ((*THEN, msgspec.structs.replace(THEN[0], name="z")), "'z' was missing then"),
        (
            (labels(3, 5), scores([0.1, 0.9, 0], [0.8, 0.2, 0])),
            "the output 'scores' was FP32 [2, 2] then, and is FP32 [2, 3] now",
        ),
    ],
)
def test_outputs_of_another_form_are_mismatched(
    now: tuple[Tensor, ...], said: str
) -> None:
    found = compared(replayed(recorded(*THEN), *now))

    assert (found.compared, found.mismatched, found.within) == (1, 1, 0)
    (told,) = found.mismatches
    assert said in told
    assert judged(found, Gate())[0] is Verdict.FAIL


def test_who_was_answered_and_fails_now_counts_against_the_version() -> None:
    good = [replayed(recorded(*THEN, offset=each), *THEN) for each in range(9)]
    failed = replayed(recorded(*THEN, offset=9), status="model_error")

    found = compared(*good, failed)

    assert (found.compared, found.failed, found.reasons["model_error"]) == (9, 1, 1)
    assert found.failures == ["headrace.requests.digits/2/9: model_error: why"]
    verdict, against = judged(found, Gate())
    assert (verdict, len(against)) == (Verdict.FAIL, 1)
    assert judged(found, Gate(within=0.9))[0] is Verdict.PASS
    assert judged(found, Gate(within=0, agreement=0.9))[0] is Verdict.PASS
    assert judged(found, Gate(within=0, agreement=0.91))[0] is Verdict.FAIL


def test_what_had_no_answer_is_counted_and_not_compared() -> None:
    refused = recorded(status="expired")
    silent = recorded(is_ended=False, offset=8)

    found = compared(replayed(refused, *THEN), replayed(silent, *THEN))

    assert (found.requests, found.compared) == (2, 0)
    assert (found.mended, found.unanswered) == (1, 1)
    assert found.ended == {"expired": 1, "unanswered": 1}
    assert judged(found, Gate(within=0)) == (Verdict.FAIL, ["nothing was compared"])


def test_latencies_are_those_of_successes() -> None:
    found = compared(
        replayed(recorded(*THEN), *THEN),
        replayed(recorded(*THEN, offset=8), status="expired"),
    )

    assert found.latency_then is not None
    assert found.latency_now is not None
    assert (found.latency_then.p50_ms, found.latency_now.max_ms) == (12.0, 50.0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_chunks_change_nothing(pairs: list[tuple[int, int]]) -> None:
    taken = [
        replayed(
            recorded(labels(one, other), scores([one, 1], [other, 1]), offset=number),
            labels(one, one),
            scores([one, 1], [one, 1]),
        )
        for number, (one, other) in enumerate(pairs)
    ]
    whole = compared(*taken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_ROWS", 3)
        assert compared(*taken) == whole
    assert whole.identical == sum(one == other for one, other in pairs)
