"""Tools that print, and one that only ends by being cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from django_mcp_idem import tool


@tool(read_only=True)
def prints() -> str:
    """Print in each way there is, and read what is typed."""
    print("by print")
    print("by the first stdout", file=sys.__stdout__)
    os.write(1, b"by the descriptor\n")
    subprocess.run(["echo", "by a child"], check=True)
    return sys.stdin.read()


@tool(read_only=True)
async def hangs() -> None:
    """Say when it has begun and when it was cancelled."""
    print("begun")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled")
        raise


@tool(read_only=True)
async def cancels_itself() -> None:
    """End as if it had been cancelled."""
    raise asyncio.CancelledError
