"""What the demo is made of, without a platform."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from headrace.errors import SetupError
from services.ctl.demo import digits, files, texts, wheels
from services.ctl.demo.load import Outcome, Sent, percentile_ms


def test_the_trained_network_reads_digits_it_has_not_seen(tmp_path: Path) -> None:
    # In a process of its own, with sums in one order: the same network each time.
    subprocess.run(
        [sys.executable, "-m", "services.ctl.demo.digits", tmp_path / "model.onnx"],
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        check=True,
    )
    session = onnxruntime.InferenceSession(
        tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
    )
    images, labels = digits.held_out()

    said, probabilities = session.run(None, {"X": images})

    assert len(labels) == 450
    assert (said == labels).mean() >= 0.95
    assert probabilities.shape == (450, 10)
    assert [axis for axis in session.get_inputs()[0].shape if axis != 64] == [None]


def test_a_file_is_seen_by_both_its_ends(tmp_path: Path) -> None:
    content = b"  \n" + b"a" * 3000 + b"z" * 3000 + b"\n\n"
    (tmp_path / "long").write_bytes(content)
    (tmp_path / "short").write_bytes(b" hi ")

    long = files.features(tmp_path / "long")[0]
    short = files.features(tmp_path / "short")[0]

    assert long.tolist() == [ord("a")] * 1024 + [ord("z")] * 1024
    assert short[:3].tolist() == [ord("h"), ord("i"), ord(" ")]
    assert short[-3:].tolist() == [ord(" "), ord("h"), ord("i")]
    assert set(short[3:-3].tolist()) == {256}


def test_files_are_found_by_what_their_names_tell() -> None:
    found = files.typed_files()
    kinds = [kind for _, kind in found]

    assert kinds.count("python") == 20
    assert all(file.stat().st_size >= 64 for file, _ in found)


def test_sentences_are_the_same_each_time() -> None:
    first = texts.sentences(50)

    assert len(first) == len(set(first.values())) == 50
    assert list(texts.sentences(50).items()) == list(first.items())


def test_the_nearest_vector_is_found_by_its_angle() -> None:
    vectors = np.array([[1, 0], [0.6, 0.8]], np.float32)

    best, cosine = texts.nearest(np.array([0, 1], np.float32), vectors)
    assert (best, cosine) == (
        1,
        pytest.approx(0.8),
    )
    hidden = np.array([[[3, 4], [3, 4]]], np.float32)
    assert texts.pool(hidden).tolist() == pytest.approx([0.6, 0.8])


def test_no_registry_is_one_sentence_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    with pytest.raises(SetupError, match="could not be fetched.*check the network"):
        wheels.fetch({wheels.MAGIKA_MODEL: tmp_path / "m.onnx"}, say=lambda _: None)


def test_a_file_that_is_there_and_intact_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    there = tmp_path / "m.txt"
    there.write_bytes(b"hello")
    member = wheels.Member(
        "w-",
        "m.txt",
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    )

    wheels.fetch({member: there}, say=lambda _: None)

    assert wheels.is_intact(there, member)
    there.write_bytes(b"hello!")
    assert not wheels.is_intact(there, member)


def test_percentiles_are_of_the_answers_alone() -> None:
    answered = [Outcome(latency_us=us, outputs={}) for us in range(1000, 101_000, 1000)]
    sent = Sent([*answered, Outcome(9_000_000, None, "late")], elapsed_us=1)

    assert (percentile_ms(sent, 0.5), percentile_ms(sent, 0.99)) == (51.0, 100.0)
    assert sent.answered == 100
