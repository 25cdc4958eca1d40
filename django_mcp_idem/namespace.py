"""The names that this package adds to MCP. They share one prefix, as MCP asks of what it does not define itself.

The prefix is the name of the distribution: the project has no domain whose reverse it could be, and a single label is
none of those that MCP reserves.
"""

from __future__ import annotations

PREFIX = "django-mcp-idem"

KEY = f"{PREFIX}/idempotencyKey"
"""In ``params._meta`` of a call: its key."""

IDEMPOTENCY = f"{PREFIX}/idempotency"
"""Among the capabilities, and in ``_meta`` of a tool: what holds for keys there."""

REPLAYED = f"{PREFIX}/replayed"
"""In ``_meta`` of a result: that it is a replay, and of when."""
