"""Offline jobs: the rows of files through idle capacity, and back into a file."""

from headrace.jobs.output import errors_url
from headrace.jobs.reading import INPUT_FORMATS
from headrace.jobs.running import JobSite, collect, input_rows, run_job
from headrace.jobs.served import served_version
from headrace.jobs.store import find
from headrace.jobs.table import Job, JobTable, JobWriter, read_jobs
from headrace.jobs.watching import JobTaken
from headrace.jobs.writing import OUTPUT_FORMATS

__all__ = [
    "INPUT_FORMATS",
    "OUTPUT_FORMATS",
    "Job",
    "JobSite",
    "JobTable",
    "JobTaken",
    "JobWriter",
    "collect",
    "errors_url",
    "find",
    "input_rows",
    "read_jobs",
    "run_job",
    "served_version",
]
