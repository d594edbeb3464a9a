"""What is known of kept answers, and what is not claimed to be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain import Source
from headrace.wire import Locator, is_keyed, job_of, keyed_id
from services.ingress.kept import Kept, KeptAnswers, Key

MEMORY_US = 10
TOPICS = ["a", "b"]
IDS = ["1", "2", "3"]


def a_kept(offset: int, log_us: int, *, is_final: bool = True) -> Kept:
    asked = Source("requests", 0, offset)
    return Kept(Source("results", 0, offset), log_us, asked, is_final)


def test_the_first_final_answer_stands_while_its_key_is_remembered() -> None:
    known = KeptAnswers(10, MEMORY_US)
    key = Key("a", "1")
    assert known.add(key, a_kept(0, 100))
    assert not known.add(key, a_kept(1, 109))
    assert known.find(key) == a_kept(0, 100)
    assert known.add(key, a_kept(2, 110))
    assert known.find(key) == a_kept(2, 110)


def test_an_error_that_invites_a_retry_gives_way_to_any_answer() -> None:
    known = KeptAnswers(10, MEMORY_US)
    key = Key("a", "1")
    assert known.add(key, a_kept(0, 100, is_final=False))
    assert not known.add(key, a_kept(0, 100, is_final=False))
    assert known.add(key, a_kept(1, 101, is_final=False))
    assert known.add(key, a_kept(2, 102))
    assert known.find(key) == a_kept(2, 102)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Key, Kept]]:
    """Answers in the order of their log times."""
    at_us = 0
    made = []
    for offset in range(draw(st.integers(0, 12))):
        at_us += draw(st.integers(0, 4))
        key = Key(draw(st.sampled_from(TOPICS)), draw(st.sampled_from(IDS)))
        made.append((key, a_kept(offset, at_us, is_final=draw(st.booleans()))))
    return made


@given(histories(), st.integers(1, 4), st.integers(0, 20))
def test_nothing_is_missed_where_everything_is_said_to_be_known(
    history: list[tuple[Key, Kept]], known_max: int, since_us: int
) -> None:
    known = KeptAnswers(known_max, MEMORY_US)
    for topic in TOPICS:
        known.follow(topic, 0)
    for key, kept in history:
        known.add(key, kept)
    for topic in TOPICS:
        if not known.covers(topic, since_us):
            continue
        for key, kept in history:
            if key.topic == topic and kept.log_us >= since_us:
                assert known.find(key) is not None
    assert not known.covers("unknown", since_us)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", fullmatch=True)


@given(
    NAMES,
    NAMES,
    st.text(min_size=1),
    st.integers(0, 999_999),
    st.integers(0, 10**18 - 1),
)
def test_a_locator_comes_as_it_went(
    tenant: str, model: str, key: str, partition: int, offset: int
) -> None:
    request_id = keyed_id(tenant, model, key)
    locator = Locator(request_id, model, partition, offset)
    assert Locator.parse(locator.encode()) == locator
    assert is_keyed(request_id)
    assert job_of(request_id) == "keyed"
    assert request_id[16] in "89ab"


@given(st.text())
def test_any_text_is_a_locator_or_none(text: str) -> None:
    found = Locator.parse(text)
    assert found is None or found.encode() == text


def test_a_key_is_one_tenants_and_one_models() -> None:
    assert (
        len(
            {
                keyed_id(*names)
                for names in (
                    ("a", "b", "c"),
                    ("ab", "", "c"),
                    ("a", "bc", ""),
                    ("a", "b", "d"),
                )
            }
        )
        == 4
    )
    assert not is_keyed("01a22b92c67afa9bd78f018fe843b800")


@pytest.mark.parametrize("is_final", [True, False])
def test_an_error_is_made_good_by_the_success_of_a_request_put_back(
    *, is_final: bool
) -> None:
    known = KeptAnswers(10, MEMORY_US)
    key = Key("a", "1")
    success = a_kept(1, 101)._replace(is_success=True)
    assert known.add(key, a_kept(0, 100, is_final=is_final))
    assert known.add(key, success)
    assert known.find(key) == success
    assert not known.add(key, a_kept(2, 102))
    assert not known.add(key, a_kept(3, 103)._replace(is_success=True))


def test_a_success_that_came_after_its_own_requests_error_is_too_late() -> None:
    known = KeptAnswers(10, MEMORY_US)
    key = Key("a", "1")
    error = a_kept(0, 100)
    late = a_kept(1, 101)._replace(is_success=True, asked=error.asked)
    assert known.add(key, error)
    assert not known.add(key, late)
    assert known.find(key) == error
