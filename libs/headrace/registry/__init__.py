"""What exists: model versions, and jobs."""

from headrace.registry.catalog import Catalog, VersionInfo
from headrace.registry.jobs import Job, JobTable

__all__ = ["Catalog", "Job", "JobTable", "VersionInfo"]
