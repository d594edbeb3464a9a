from __future__ import annotations

from pathlib import Path

import pytest

from headrace.embedded import ending
from headrace.embedded.ending import ended, full_disk


def test_a_broker_without_room_says_so_and_not_that_the_queue_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("java.io.IOException: No space left on device\n")
    monkeypatch.setattr(ending, "_FREE_MIN", 1 << 62)
    full = full_disk(tmp_path)
    assert full.startswith(f"the disk of {tmp_path} is full (")
    assert " MB free): free some" in full
    text = str(ended(1, log))
    assert text == f"Apache Kafka ended with status 1 before it answered: {full}."


def test_a_broker_with_room_says_what_its_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("starting\nExceptionInInitializerError: bad index\n")
    monkeypatch.setattr(ending, "_FREE_MIN", 0)
    assert full_disk(tmp_path) == ""
    text = str(ended(1, log))
    assert "before it answered (bad index): look into" in text
    assert f"delete {tmp_path / 'storage'}" in text
