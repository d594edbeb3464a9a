"""structlog, imported without rich.

It would import it, a fifth of a second of every start, to print tracebacks in colour
with the values of local variables: other people's tensors, which are never printed.
"""

import sys

_KNOWN = "rich" in sys.modules
if not _KNOWN:
    sys.modules["rich"] = None  # type: ignore[assignment] # an import that fails

import structlog  # noqa: E402 - see above

if not _KNOWN:
    del sys.modules["rich"]

__all__ = ["structlog"]
