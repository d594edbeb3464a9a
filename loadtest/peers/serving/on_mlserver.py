"""The runtime that MLServer imports."""

import served
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Runtime(MLModel):
    async def load(self) -> bool:
        self._run = served.load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        found = self._run(NumpyCodec.decode_input(payload.inputs[0]))
        output = NumpyCodec.encode_output("y", found)
        return InferenceResponse(model_name=self.name, outputs=[output])
