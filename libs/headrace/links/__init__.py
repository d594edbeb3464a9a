"""Streams of byte strings between two processes of a machine, over Unix sockets."""

from headrace.links.listening import LinkListener
from headrace.links.place import LinkFolder
from headrace.links.sending import LinkSender

__all__ = ["LinkFolder", "LinkListener", "LinkSender"]
