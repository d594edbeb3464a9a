from __future__ import annotations

import pytest

from headrace.runtime.failures import FailureKind, clean_text, kind_of_text

AT = "/onnxruntime_src/onnxruntime/core/"
CODE = "[ONNXRuntimeError] : 1 : FAIL : "
NODE = "Non-zero status code returned while running {} node. Name:'{}' Status Message: "


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : "
            + NODE.format("Gather", "/emb/Gather")
            + "indices element out of data bounds, must be within [-8,7]",
            "Gather node: indices element out of data bounds, must be within [-8,7]",
        ),
        (
            CODE
            + "Load model from /srv/m/1/model.onnx failed:"
            + AT
            + "graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, "
            + "const onnxruntime::PathString&) Unsupported model IR version: 99, max "
            + "supported IR version: 13\n",
            "Unsupported model IR version: 99, max supported IR version: 13",
        ),
        (
            CODE
            + NODE.format("C", "")
            + AT
            + "framework/op_kernel.cc:87 virtual OrtValue* onnxruntime::"
            + "OpKernelContext::OutputMLValue(int, const onnxruntime::TensorShape&) "
            + CODE
            + "tensor.cc:57 CalculateTensorStorageSize "
            + "Tensor shape.Size() must be >= 0\n",
            "C node: Tensor shape.Size() must be >= 0",
        ),
        (
            AT
            + "common/safeint.h:17 static void Handler<onnxruntime::Exception>"
            + "::OnOverflow() Integer overflow\n",
            "Integer overflow",
        ),
        (
            'External data path: "../../etc/hosts" resolved path: "/etc/hosts"',
            'External data path: "<path>" resolved path: "<path>"',
        ),
        (
            "acme.custom:FancyOp(-1) is not a registered function/op",
            "acme.custom:FancyOp(-1) is not a registered function/op",
        ),
        ("x" * 600, "x" * 500 + "..."),
    ],
)
def test_a_text_of_the_runtime_is_made_fit_for_a_client(
    text: str, cleaned: str
) -> None:
    assert clean_text(text) == cleaned


CUDA = "CUDA failure {}: {} ; GPU=0 ; hostname=h ; file=gpu_data_transfer.cc ; line=73"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            AT + "framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::"
            "AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to "
            "allocate memory for requested buffer of size 43980465111040",
            FailureKind.MEMORY,
        ),
        ("Failed to find a free memory block despite calling Extend.", "memory"),
        (CUDA.format(2, "out of memory"), FailureKind.MEMORY),
        ("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0", FailureKind.MEMORY),
        ("CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED ; GPU=0", FailureKind.MEMORY),
        (
            CUDA.format(700, "an illegal memory access was encountered"),
            FailureKind.DEVICE,
        ),
        (CUDA.format(710, "device-side assert triggered"), FailureKind.DEVICE),
        (CUDA.format(719, "unspecified launch failure"), FailureKind.DEVICE),
        (CUDA.format(1, "invalid argument"), None),
        ("CUBLAS failure 14: CUBLAS_STATUS_INTERNAL_ERROR ; GPU=0", None),
        ("Exiting due to terminate flag being set to true.", FailureKind.STOPPED),
        (CODE + NODE.format("Reshape", ""), None),
    ],
)
def test_a_text_says_what_may_be_done(text: str, kind: FailureKind | None) -> None:
    assert kind_of_text(text) == kind
