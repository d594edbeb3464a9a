from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.repository import (
    Appeared,
    Changed,
    Changes,
    FileFacts,
    Fingerprint,
    Gone,
    VersionKey,
)

KEY = VersionKey("addsub", "1")


def files(size: int) -> Fingerprint:
    return Fingerprint((FileFacts("model.onnx", size, 0, 1),), "")


def test_a_folder_appears_when_two_scans_agree() -> None:
    changes = Changes()

    assert changes.observe({KEY: files(1)}) == []
    assert changes.observe({KEY: files(2)}) == []
    assert changes.observe({KEY: files(2)}) == [Appeared(KEY, "")]
    assert changes.observe({KEY: files(2)}) == []


def test_a_change_is_told_once_it_is_settled() -> None:
    changes = Changes()
    changes.observe({KEY: files(1)})
    changes.observe({KEY: files(1)})

    assert changes.observe({KEY: files(2)}) == []
    assert changes.observe({KEY: files(2)}) == [Changed(KEY, "")]


def test_a_change_that_is_taken_back_is_no_change() -> None:
    changes = Changes()
    changes.observe({KEY: files(1)})
    changes.observe({KEY: files(1)})

    assert changes.observe({KEY: files(2)}) == []
    assert changes.observe({KEY: files(1)}) == []
    assert changes.observe({KEY: files(1)}) == []


def test_a_removed_folder_is_gone_at_once_and_appears_anew() -> None:
    changes = Changes()
    changes.observe({KEY: files(1)})
    changes.observe({KEY: files(1)})

    assert changes.observe({}) == [Gone(KEY)]
    assert changes.observe({}) == []
    assert changes.observe({KEY: files(1)}) == []
    assert changes.observe({KEY: files(1)}) == [Appeared(KEY, "")]


def test_a_folder_that_never_settled_is_not_told_as_gone() -> None:
    changes = Changes()
    changes.observe({KEY: files(1)})

    assert changes.observe({}) == []


def test_a_trusted_folder_has_appeared() -> None:
    changes = Changes()
    changes.trust(KEY, files(1))

    assert changes.observe({KEY: files(1)}) == []
    assert changes.observe({}) == [Gone(KEY)]


def test_a_problem_travels_with_the_event() -> None:
    changes = Changes()
    bad = Fingerprint((), "a link")
    changes.observe({KEY: bad})

    assert changes.observe({KEY: bad}) == [Appeared(KEY, "a link")]


@given(st.lists(st.sampled_from([None, 1, 2])))
def test_events_tell_what_the_folder_settled_at(sizes: list[int | None]) -> None:
    """Appeared and Gone alternate, Changed only between them, and two equal scans at
    the end mean that the listener knows the present state."""
    changes = Changes()
    known: int | None = None
    for size in [*sizes, *(sizes[-1:] * 2)]:
        for event in changes.observe({KEY: files(size)} if size else {}):
            match event:
                case Appeared():
                    assert known is None
                    known = size
                case Changed():
                    assert known not in {None, size}
                    known = size
                case Gone():
                    assert known is not None
                    known = None
    if sizes:
        assert known == sizes[-1]
