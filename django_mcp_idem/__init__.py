"""An MCP endpoint for Django whose tool calls are safe to retry."""

from .context import ToolContext
from .idempotency.outcomes import NothingDone, OutcomeUnknown
from .registry import Site, site
from .tools import ToolError

__version__ = "0.1.0.dev0"

__all__ = ["NothingDone", "OutcomeUnknown", "Site", "ToolContext", "ToolError", "site", "tool"]

tool = site.tool
