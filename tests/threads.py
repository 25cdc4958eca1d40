"""A second caller, in a thread and so on a database connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from django.db import connections

T = TypeVar("T")

PATIENCE = 10


def elsewhere(act: Callable[[], T]) -> T:
    """What ``act`` returns or raises in another thread, which is waited for ten seconds."""
    return begun(act).result(timeout=PATIENCE)


def begun(act: Callable[[], T]) -> Future[T]:
    """Begin ``act`` in another thread."""

    def run() -> T:
        try:
            return act()
        finally:
            connections.close_all()

    threads = ThreadPoolExecutor(1)
    try:
        return threads.submit(run)
    finally:
        # Not waited for: what hangs may wait for the very test that would wait for it.
        threads.shutdown(wait=False)
