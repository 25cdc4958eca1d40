"""A tool that asks the client, and one that says which process answers."""

from __future__ import annotations

import os

from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from django_mcp_idem import ToolContext, tool

ASKS_FOR_NAME = ElicitRequest(
    params=ElicitRequestFormParams(
        message="What is your name?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)


@tool(read_only=True)
def greet(ctx: ToolContext) -> str | InputRequiredResult:
    """Greet the person by the name that they give."""
    answer = (ctx.input_responses or {}).get("name")
    if answer is None:
        return InputRequiredResult(input_requests={"name": ASKS_FOR_NAME})
    return f"Hello, {answer['content']['name']}!"


@tool(read_only=True)
def process_id() -> int:
    """Say which of the server's processes answers."""
    return os.getpid()
