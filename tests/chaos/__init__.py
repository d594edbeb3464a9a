"""Faults under load, on one platform that is gone when the last of these is over."""
