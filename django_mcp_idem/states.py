"""The words a record is described in: its states, and the ways a call can have ended."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class State(models.TextChoices):
    """Where a record stands."""

    RUNNING = "running", _("running")
    DONE = "done", _("done")
    UNKNOWN = "unknown", _("outcome unknown")
    OPEN = "open", _("open for another attempt")


class Ending(models.TextChoices):
    """How a call ended, for a record that is done."""

    RESULT = "result", _("result")
    TOOL_ERROR = "tool_error", _("tool error")
    PROTOCOL_ERROR = "protocol_error", _("JSON-RPC error")
    OMITTED = "omitted", _("result too large to keep")
