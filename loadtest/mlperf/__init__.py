"""Headrace under MLPerf's LoadGen."""
