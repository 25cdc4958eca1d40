"""An MCP endpoint for Django whose tool calls are safe to retry."""

from .context import RequestContext, ToolContext
from .idempotency.outcomes import NothingDone, OutcomeUnknown
from .registry import Site, site
from .tools import ToolError

__version__ = "0.1.0.dev0"

__all__ = [
    "NothingDone",
    "OutcomeUnknown",
    "RequestContext",
    "Site",
    "ToolContext",
    "ToolError",
    "prompt",
    "resource",
    "site",
    "tool",
]

tool = site.tool
prompt = site.prompt
resource = site.resource
