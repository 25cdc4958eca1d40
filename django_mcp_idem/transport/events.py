"""Server-sent events, as they are written."""

from __future__ import annotations

QUIET_SECONDS = 15.0
"""After so long without a word a stream begins, or says that it is alive: proxies cut what is silent."""

ALIVE = b": alive\r\n\r\n"

CONTENT_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}

RETRY_MS = 500
"""After how long a client may come back to a stream that has ended without its last message."""


def event(data: bytes, event_id: str | None = None) -> bytes:
    """The event of one message, which has an identifier where the client can come back to what follows it."""
    named = b"" if event_id is None else b"id: " + event_id.encode() + b"\r\n"
    return named + b"event: message\r\ndata: " + data + b"\r\n\r\n"


def priming_event(event_id: str) -> bytes:
    """The event that says nothing but where a stream begins."""
    return b"id: " + event_id.encode() + b"\r\nretry: %d\r\ndata: \r\n\r\n" % RETRY_MS
