"""The ``headrace`` command: start the platform here, ask it, look into it.

It decides nothing about requests. Each command is a module of its own that is
imported when it is called, so that ``headrace --help`` answers at once.
"""
