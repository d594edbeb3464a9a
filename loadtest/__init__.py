"""Load tests of a running platform; see README.md beside this file."""
