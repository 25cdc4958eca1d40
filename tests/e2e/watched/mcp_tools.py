"""Tools that tell what the process holds, and that do not end before they are made to."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

from pydantic import BaseModel

from django_mcp_idem import ToolContext, tool


class Holdings(BaseModel):
    """What a process holds, this call included."""

    threads: int
    tasks: int
    files: int
    memory: int


# A process has one heartbeat for a while after a call, and a few threads for what may run in any.
_OF_NO_CALL = ("mcp-idem-heartbeat", "asyncio_")


@tool(read_only=True)
async def holdings() -> Holdings:
    """Count the threads of calls, asyncio tasks, open files, which connections are too, and resident bytes."""
    gc.collect()
    _, resident, *_ = Path("/proc/self/statm").read_text().split()
    return Holdings(
        threads=sum(not thread.name.startswith(_OF_NO_CALL) for thread in threading.enumerate()),
        tasks=len(asyncio.all_tasks()),
        files=len(os.listdir("/proc/self/fd")),
        memory=int(resident) * os.sysconf("SC_PAGE_SIZE"),
    )


_released = threading.Semaphore(0)
_ended = 0


@tool(read_only=True)
async def hangs(ctx: ToolContext) -> None:
    """End only by being cancelled."""
    ctx.report_progress(1)
    await asyncio.Event().wait()


@tool(read_only=True)
def blocks(ctx: ToolContext) -> None:
    """Hold a thread until ``release`` is called."""
    global _ended
    ctx.report_progress(1)
    _released.acquire()
    _ended += 1


@tool(read_only=True)
def release() -> None:
    """Let one call of ``blocks`` end."""
    _released.release()


@tool(read_only=True)
def ended() -> int:
    """How many calls of ``blocks`` have run to their end."""
    return _ended
