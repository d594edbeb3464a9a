"""The checker itself: a promise that is broken is found, and an excused one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.history import Ask, End, Window, breaches, tally

RIGHT = Ask(
    number=7,
    model="echo",
    ingress=0,
    limit_us=2_000_000,
    sent_us=10_000_000,
    ended_us=10_050_000,
    end=End.ANSWERED,
    status=200,
    is_right=True,
)
KILLED = Window(0, 10_020_000, 10_500_000, is_kill=True)
REFUSED = replace(RIGHT, status=503, is_right=False, reason="no_former")
BROKEN = replace(RIGHT, end=End.BROKEN, status=0, is_right=False)


def late(ask: Ask, us: int) -> Ask:
    return replace(ask, ended_us=ask.sent_us + ask.limit_us + us)


@pytest.mark.parametrize(
    "ask",
    [
        RIGHT,
        REFUSED,
        late(RIGHT, 250_000),
        replace(late(RIGHT, 300_000), lag_us=60_000),
        late(replace(RIGHT, sent_us=9_000_000), 700_000),
    ],
)
def test_what_keeps_the_promise(ask: Ask) -> None:
    frozen = Window(0, 10_000_000, 10_500_000)
    others = Window(1, 0, 60_000_000, is_kill=True)
    assert breaches([ask], [frozen, others] if ask.sent_us < 10_000_000 else []) == []


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (replace(RIGHT, is_right=False), "a wrong answer"),
        (replace(REFUSED, status=404, reason="model_unknown"), "404 model_unknown"),
        (replace(REFUSED, status=500, reason="crash"), "500 crash"),
        (replace(RIGHT, end=End.SILENT), "lost"),
        (BROKEN, "nobody had killed"),
        (late(RIGHT, 250_001), "right after 2250 ms"),
        (late(REFUSED, 300_000), "503 no_former after 2300 ms"),
    ],
)
def test_what_breaks_the_promise(ask: Ask, words: str) -> None:
    elsewhere = Window(1, 0, 60_000_000, is_kill=True)
    before = Window(0, 1_000_000, 2_000_000, is_kill=True)
    (found,) = breaches([ask], [elsewhere, before])
    assert words in found


def test_a_frozen_ingress_breaks_no_connection() -> None:
    assert breaches([BROKEN], [replace(KILLED, is_kill=False)]) != []
    assert breaches([BROKEN], [KILLED]) == []


def test_a_key_whose_connection_ended_must_bring_the_answer() -> None:
    broken = replace(BROKEN, key="k")
    refused, answered = replace(REFUSED, key="k"), replace(RIGHT, key="k")
    assert breaches([broken, refused, answered], [KILLED]) == []
    for asks in ([broken], [broken, refused], [broken, replace(answered, key="l")]):
        (found,) = breaches(asks, [KILLED])
        assert "asked again under its key" in found


def test_ends_are_counted_by_what_the_client_saw() -> None:
    asks = [RIGHT, RIGHT, replace(RIGHT, is_right=False), REFUSED, BROKEN]
    assert tally(asks) == {"right": 2, "wrong": 1, "503 no_former": 1, "broken": 1}
