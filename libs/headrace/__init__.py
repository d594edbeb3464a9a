"""Headrace: one-at-a-time inference requests into full batches, through Kafka."""
