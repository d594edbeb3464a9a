"""Model folders: which versions there are, what their manifests say, what changed."""

from headrace.repository.changes import Appeared, Change, Changed, Changes, Gone
from headrace.repository.external_data import check_external_data
from headrace.repository.folders import (
    FileFacts,
    Fingerprint,
    VersionKey,
    bare_models,
    content_sha256,
    scan_folder,
    version_folder,
)
from headrace.repository.manifest import MANIFEST_NAME, MODEL_NAME, read_manifest

__all__ = [
    "MANIFEST_NAME",
    "MODEL_NAME",
    "Appeared",
    "Change",
    "Changed",
    "Changes",
    "FileFacts",
    "Fingerprint",
    "Gone",
    "VersionKey",
    "bare_models",
    "check_external_data",
    "content_sha256",
    "read_manifest",
    "scan_folder",
    "version_folder",
]
