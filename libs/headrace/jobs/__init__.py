"""Offline jobs: the rows of files through idle capacity, and back into a file."""

from headrace.jobs.output import (
    check_output,
    errors_url,
    made_of,
    remove_unfinished,
)
from headrace.jobs.reading import INPUT_FORMATS
from headrace.jobs.running import JobSite, collect, input_rows, run_job
from headrace.jobs.served import served_version
from headrace.jobs.store import check_may_write, find, local_path
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
    "check_may_write",
    "check_output",
    "collect",
    "errors_url",
    "find",
    "input_rows",
    "local_path",
    "made_of",
    "read_jobs",
    "remove_unfinished",
    "run_job",
    "served_version",
]
