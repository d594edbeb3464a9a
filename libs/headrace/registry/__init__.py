"""Which model versions exist, and which of them may be asked."""

from headrace.registry.catalog import Catalog, VersionInfo

__all__ = ["Catalog", "VersionInfo"]
