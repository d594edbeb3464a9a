"""The model.py of a Triton repository; its python backend imports it."""

from __future__ import annotations

from typing import Any

import numpy as np
import served
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args: Any) -> None:
        self._run = served.load()

    def execute(self, requests: Any) -> Any:
        rows = np.concatenate(
            [triton.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        )
        found = self._run(rows)
        answers, at = [], 0
        for each in requests:
            count = len(triton.get_input_tensor_by_name(each, "x").as_numpy())
            tensor = triton.Tensor("y", found[at : at + count])
            answers.append(triton.InferenceResponse([tensor]))
            at += count
        return answers
