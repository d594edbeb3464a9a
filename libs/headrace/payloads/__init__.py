"""Tensors that are too large for a record, kept where fsspec reaches."""

from headrace.payloads.reaching import asked_of, reach_store
from headrace.payloads.store import PayloadStore
from headrace.payloads.threads import StoreThreads

__all__ = ["PayloadStore", "StoreThreads", "asked_of", "reach_store"]
