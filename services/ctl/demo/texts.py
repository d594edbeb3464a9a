"""Sentences for an embedding model: what Python's own functions say of themselves."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

__all__ = ["Encoder", "nearest", "pool", "sentences"]

_SEED = 0
_TOKENS_MAX = 256
_MODULES = (
    *("base64", "bisect", "calendar", "copy", "csv", "difflib", "filecmp", "fnmatch"),
    *("ftplib", "functools", "getpass", "glob", "gzip", "heapq", "html", "imaplib"),
    *("inspect", "linecache", "locale", "mimetypes", "netrc", "ntpath", "os"),
    *("pathlib", "pickle", "platform", "poplib", "posixpath", "pprint", "queue"),
    *("random", "sched", "secrets", "shlex", "shutil", "smtplib", "socket"),
    *("socketserver", "ssl", "statistics", "string", "subprocess", "sysconfig"),
    *("tarfile", "tempfile", "textwrap", "threading", "timeit", "tokenize", "trace"),
    *("turtle", "uuid", "warnings", "wave", "weakref", "webbrowser", "zipfile"),
)


def sentences(count: int) -> dict[str, str]:
    """Up to ``count`` first paragraphs by the name of the function they describe; the
    same ones at each call on a machine."""
    found = sorted({text: name for name, text in _documented()}.items())
    random.Random(_SEED).shuffle(found)
    return {name: text for text, name in found[:count]}


def _documented() -> Iterator[tuple[str, str]]:
    library = Path(sysconfig.get_path("stdlib"))
    for module in _MODULES:
        for file in (library / f"{module}.py", library / module / "__init__.py"):
            if file.is_file():
                yield from _docstrings(module, ast.parse(file.read_bytes()).body)


def _docstrings(owner: str, body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        name = f"{owner}.{node.name}"
        text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
        if " " in text:
            yield name, text
        if isinstance(node, ast.ClassDef):
            yield from _docstrings(name, node.body)


class Encoder:
    """Text to the model's three inputs, as long as the text; nothing is padded."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        # The shipped file pads and truncates to 128 tokens.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_TOKENS_MAX)

    def __call__(self, text: str) -> dict[str, npt.NDArray[np.int64]]:
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        return {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }


def pool(hidden: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """One unit vector [384] of a text's hidden states [1, tokens, 384]. Nothing of it
    was padded, so the mask of the usual masked mean is all ones."""
    vector = hidden[0].mean(axis=0)
    return np.asarray(vector / np.linalg.norm(vector), np.float32)


def nearest(
    question: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32]
) -> tuple[int, float]:
    """Which row of unit ``vectors`` is nearest, and the cosine."""
    cosines = vectors @ question
    best = int(cosines.argmax())
    return best, float(cosines[best])
