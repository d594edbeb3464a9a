"""What the demo asks each model, and how it judges the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from services.ctl.client import InferRequest, infer_request
from services.ctl.demo import digits, files, texts
from services.ctl.demo.models import DIGITS, MAGIKA, MINILM, Repository

__all__ = ["Task", "Verdict", "tasks"]

Tensors = Mapping[str, npt.NDArray[Any]]

_TIMEOUT_US = 30_000_000
_SENTENCES = 600
_QUESTIONS = (
    "unpack a compressed archive",
    "compare two texts line by line",
    "open a page in the browser",
)


class Verdict(NamedTuple):
    """``accuracy`` None: there is nothing to compare with; ``sample`` is one answer
    for people; ``sound`` False: the answers are not what this model gives."""

    accuracy: float | None
    sample: str
    sound: bool


@dataclass(frozen=True, slots=True)
class Task:
    """One model's requests. ``judge`` gets the outputs in their order, or None for
    one that was not answered."""

    model: str
    inputs: str
    requests: Sequence[InferRequest]
    judge: Callable[[Sequence[Tensors | None]], Verdict]


def tasks(repository: Repository) -> list[Task]:
    """The demo's three tasks, in the order in which they are shown."""
    return [_digits(), _sentences(repository), _files(repository)]


def _digits() -> Task:
    images, labels = digits.held_out()

    def judge(answers: Sequence[Tensors | None]) -> Verdict:
        said = [answer and int(answer["label"][0]) for answer in answers]
        accuracy = _share(said, labels.tolist())
        sample = f"an image of a {labels[0]} is taken for a {said[0]}"
        return Verdict(accuracy, sample, accuracy >= 0.95)

    requests = [_request({"X": image[None]}) for image in images]
    return Task(DIGITS, "handwritten digits", requests, judge)


def _sentences(repository: Repository) -> Task:
    described = texts.sentences(_SENTENCES)
    encode = texts.Encoder(repository.tokenizer)
    asked = [*_QUESTIONS, *described.values()]

    def judge(answers: Sequence[Tensors | None]) -> Verdict:
        if any(answer is None for answer in answers):
            return Verdict(None, "not every sentence was answered", sound=True)
        vectors = np.stack([texts.pool(a["last_hidden_state"]) for a in answers if a])
        questions, described_vectors = np.split(vectors, [len(_QUESTIONS)])
        found = [texts.nearest(question, described_vectors) for question in questions]
        names = list(described)
        sample = f'"{_QUESTIONS[0]}" is nearest to {names[found[0][0]]}'
        sound = bool(np.isfinite(vectors).all()) and min(c for _, c in found) > 0.2
        return Verdict(None, sample, sound)

    requests = [_request(encode(text)) for text in asked]
    return Task(MINILM, "sentences", requests, judge)


def _files(repository: Repository) -> Task:
    found = files.typed_files()
    names = files.labels(repository.magika_config)

    def judge(answers: Sequence[Tensors | None]) -> Verdict:
        said = [
            answer and names[answer["target_label"][0].argmax()] for answer in answers
        ]
        accuracy = _share(said, [kind for _, kind in found])
        sample = f"{found[0][0].name} is {said[0]}"
        return Verdict(accuracy, sample, accuracy >= 0.9)

    requests = [_request({"bytes": files.features(file)}) for file, _ in found]
    return Task(MAGIKA, "files", requests, judge)


def _request(inputs: Tensors) -> InferRequest:
    """Patient, since a slow machine is no failure."""
    return infer_request(inputs, parameters={"timeout": _TIMEOUT_US})


def _share(said: Sequence[object], right: Sequence[object]) -> float:
    """The share of the answers given that are right."""
    pairs = [(a, b) for a, b in zip(said, right, strict=True) if a is not None]
    return sum(a == b for a, b in pairs) / max(len(pairs), 1)
