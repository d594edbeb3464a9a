"""The HTTP door: requests in, answers out, the log in between.

A request to the inference route lives outside ASGI, as one object per request
(:mod:`services.ingress.protocol`); every other path is a Starlette route
(:mod:`services.ingress.cold`). Both call the same handler.
"""
