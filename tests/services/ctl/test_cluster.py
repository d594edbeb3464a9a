"""A name that is not on the cluster is no empty answer."""

from __future__ import annotations

import pytest

from headrace.wire import Topics
from services.ctl.cluster import check_names, check_partition
from services.ctl.errors import UsageError

NAMES = Topics("mine")
THERE = [
    NAMES.control_models,
    NAMES.status,
    NAMES.lanes,
    NAMES.requests("digits"),
    NAMES.requests("words"),
    NAMES.dead_letters("gone"),
    "another.one.control.models",
    "strangers",
]


def test_names_that_are_there_are_let_through() -> None:
    check_names(NAMES, THERE, "k:1", pool="default", models=["digits", "words"])


def test_a_prefix_without_topics_is_told_from_those_with_some() -> None:
    with pytest.raises(UsageError) as refused:
        check_names(Topics("nope"), THERE, "k:1")

    assert str(refused.value) == (
        "No topic at k:1 begins with 'nope': it has the prefixes another.one, mine."
    )


def test_a_cluster_on_which_nothing_ran_says_so() -> None:
    with pytest.raises(UsageError, match="it has no prefix of Headrace yet"):
        check_names(Topics(), ["strangers"], "k:1")


def test_a_pool_without_lanes_is_told_from_those_with_some() -> None:
    with pytest.raises(UsageError) as refused:
        check_names(Topics("mine", "nope"), THERE, "k:1", pool="nope")

    assert str(refused.value) == (
        "There is no pool 'nope' at k:1: it has the pool default."
    )


def test_a_model_without_a_queue_is_told_from_those_with_one() -> None:
    with pytest.raises(UsageError) as refused:
        check_names(NAMES, THERE, "k:1", models=["digits", "nope"])

    assert str(refused.value) == (
        "There is no model 'nope' at k:1: it has the models digits, words."
    )


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (0, "There is no topic t."),
        (1, "t has no partition 9: it has the partition 0."),
        (4, "t has no partition 9: it has the partitions 0 to 3."),
    ],
)
def test_a_partition_that_is_not_there_is_told_from_those_that_are(
    count: int, sentence: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_partition("t", 9, count)

    assert str(refused.value) == sentence
    check_partition("t", 9, 10)
