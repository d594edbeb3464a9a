"""Tensors that are too large for a record, kept where fsspec reaches."""

from headrace.payloads.reaching import asked_of, reach_store
from headrace.payloads.store import PayloadStore, no_store
from headrace.payloads.threads import StoreThreads

__all__ = ["PayloadStore", "StoreThreads", "asked_of", "no_store", "reach_store"]
