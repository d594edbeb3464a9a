"""Handwritten digits: a small network, trained here, and images it has never seen.

``python -m services.ctl.demo.digits FILE`` trains it (seed 0, about a second) and
writes the ONNX file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["held_out", "train"]

_SEED = 0


def train(file: Path) -> None:
    """Train on three quarters of the images and write the model to ``file``.

    Input ``X`` FP32 [n, 64]; outputs ``label`` INT64 [n], ``probabilities`` FP32
    [n, 10].
    """
    from skl2onnx import to_onnx  # noqa: PLC0415 - 2 s that a trained model saves
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import MinMaxScaler  # noqa: PLC0415

    images, _, labels, _ = _split()
    network = MLPClassifier((512, 256), random_state=_SEED, max_iter=200, tol=1e-3)
    pipeline = make_pipeline(MinMaxScaler(), network).fit(images, labels)
    model = to_onnx(pipeline, images[:1], options={"zipmap": False})
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".incoming")
    fresh.write_bytes(model.SerializeToString())
    fresh.replace(file)


def held_out() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """The other quarter: 450 images of 64 grey values, and what they show."""
    _, images, _, labels = _split()
    return images, labels


def _split() -> tuple[
    npt.NDArray[np.float32],
    npt.NDArray[np.float32],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
]:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second to import
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images.astype(np.float32), labels, random_state=_SEED, stratify=labels
    )
    return train_x, test_x, train_y, test_y


if __name__ == "__main__":
    train(Path(sys.argv[1]))
