"""Version folders in Triton's layout, as an operator would put them."""

from __future__ import annotations

from pathlib import Path

SIMULATED = """\
backend = "simulated"
alpha_ms = {alpha_ms}
beta_ms = {beta_ms}
max_batch = {max_batch}
inputs = [{{ name = "X", datatype = "FP32", shape = [-1, {width}] }}]
"""


def put_version(
    models: Path, model: str, version: str, onnx: bytes, toml: str = ""
) -> Path:
    """Write ``<models>/<model>/<version>/model.onnx`` (and ``model.toml``)."""
    folder = models / model / version
    folder.mkdir(parents=True)
    if toml:
        (folder / "model.toml").write_text(toml)
    (folder / "model.onnx").write_bytes(onnx)
    return folder


def put_simulated(
    models: Path,
    model: str,
    version: str,
    *,
    alpha_ms: float = 5.0,
    beta_ms: float = 0.25,
    max_batch: int = 32,
    width: int = 4,
    memory_left_rows: int | None = None,
) -> Path:
    """A simulated accelerator: input ``X`` FP32 [-1, width], output the same."""
    folder = models / model / version
    folder.mkdir(parents=True)
    left = ""
    if memory_left_rows is not None:
        left = f"memory_left_rows = {memory_left_rows}\n"
    (folder / "model.toml").write_text(
        left
        + SIMULATED.format(
            alpha_ms=alpha_ms, beta_ms=beta_ms, max_batch=max_batch, width=width
        )
    )
    return folder
