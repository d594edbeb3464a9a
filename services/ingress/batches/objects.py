"""What the API says of files, batches and errors, in its own words."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.registry import Job
from headrace.wire.jobs import JobProgress, JobStage, JobState
from services.ingress.refusal import Refusal

__all__ = [
    "ApiError",
    "StoredFile",
    "batch_object",
    "envelope",
    "file_object",
    "status_of",
]


class ApiError(RequestError):
    """A request for files or batches that cannot be served as it was sent. ``param``:
    the parameter at fault; ``code``: the API's word for what is wrong."""

    def __init__(
        self,
        text: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        reason: str = "invalid",
    ) -> None:
        super().__init__(text, reason=reason)
        self.status = status
        self.param = param
        self.code = code


class StoredFile(msgspec.Struct, frozen=True):
    """A file as its store describes it; ``created_at``: seconds since the epoch."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None = None
    """From then on it is not there; None: it stays until it is deleted."""

    def is_over(self, now_s: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now_s


def envelope(refusal: Refusal, error: Exception) -> bytes:
    """The body of an answer other than 200."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    given = error if isinstance(error, ApiError) else None
    told = {
        "message": refusal.text,
        "type": kind,
        "param": given.param if given else None,
        "code": (given.code if given else None) or refusal.reason.value,
    }
    return msgspec.json.encode({"error": told})


def file_object(file: StoredFile) -> dict[str, Any]:
    return {
        "object": "file",
        **msgspec.structs.asdict(file),
        "status": "processed",
        "status_details": None,
    }


def status_of(job: Job) -> str:
    """The API's word for how far a batch is."""
    progress = job.progress
    state = progress.state if progress else JobState.STOPPED
    match state:
        case JobState.DONE:
            return "expired" if progress and progress.expired else "completed"
        case JobState.FAILED:
            return "failed"
        case JobState.CANCELLED:
            return "cancelled"
        case JobState.RUNNING | JobState.STOPPED:
            stages = progress.stages if progress else {}
            if JobStage.WRITING in stages:
                return "finalizing"
            if job.cancelled:
                return "cancelling"
            return "in_progress" if JobStage.PUBLISHING in stages else "validating"


def batch_object(job: Job) -> dict[str, Any]:
    """The batch as the API shows it. ``job`` has a spec, with a batch."""
    spec = job.spec
    assert spec is not None
    order = spec.batch
    assert order is not None
    status = status_of(job)
    progress = job.progress
    stages = progress.stages if progress else {}
    ended_at = _seconds(stages.get(JobStage.ENDED, job.heard_us))
    done, failed = (progress.done, progress.failed) if progress else (0, 0)
    has_files = status in {"completed", "expired", "cancelled"}
    return {
        "id": spec.job,
        "object": "batch",
        "endpoint": order.endpoint,
        "model": spec.model,
        "errors": _errors(progress) if status == "failed" else None,
        "input_file_id": order.input_file_id,
        "completion_window": order.completion_window,
        "status": status,
        "output_file_id": order.output_file_id if has_files and done > failed else None,
        "error_file_id": order.error_file_id if has_files and failed else None,
        "created_at": _seconds(spec.submitted_us),
        "in_progress_at": _seconds(stages.get(JobStage.PUBLISHING)),
        "expires_at": _seconds(spec.deadline_us),
        "finalizing_at": _seconds(stages.get(JobStage.WRITING)),
        "completed_at": ended_at if status == "completed" else None,
        "failed_at": ended_at if status == "failed" else None,
        "expired_at": ended_at if status == "expired" else None,
        "cancelling_at": _seconds(job.cancelled_us),
        "cancelled_at": ended_at if status == "cancelled" else None,
        "request_counts": {
            "total": (progress.rows if progress else None) or 0,
            "completed": done - failed,
            "failed": failed,
        },
        "metadata": order.metadata,
    }


def _errors(progress: JobProgress | None) -> dict[str, Any]:
    text = progress.text if progress else ""
    told = {
        "code": "invalid_input_file",
        "line": None,
        "message": text,
        "param": "input_file_id",
    }
    return {"object": "list", "data": [told]}


def _seconds(us: int | None) -> int | None:
    return us // 1_000_000 if us else None
