"""Real inputs, real models, one request each: what ``headrace demo`` shows.

Three models: one that a script here trains in a second, two that packages ship. Of
those packages single files are read; nothing of them is installed or imported.
"""
