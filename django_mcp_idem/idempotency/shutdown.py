"""The end of a process: no new claims, a grace period, then what still runs is settled as it stands (R25).

What the server kills before that is covered by its lease, or by its transaction.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import ClassVar

from django.db import Error

from ..conf import get_settings
from . import records
from .databases import own_connection
from .leases import HeldLease, get_heartbeat

logger = logging.getLogger(__name__)


class _Shutdown:
    """Whether SIGTERM has come. A signal handler may interrupt whoever has a lock, so there is none."""

    begun = False
    handler: object = None
    hooks: ClassVar[list[Callable[[], None]]] = []


def is_shutting_down() -> bool:
    """Whether this process has been told to end."""
    return _Shutdown.begun


def on_shutdown(hook: Callable[[], None]) -> None:
    """Have ``hook`` called when this process has been told to end, in a signal handler: it must neither wait nor lock.

    Args:
        hook: What to call. Given again it is called once.
    """
    if hook not in _Shutdown.hooks:
        _Shutdown.hooks.append(hook)


def watch_for_shutdown() -> None:
    """Be told of SIGTERM before the server is, where a server handles it and this is the main thread.

    Servers differ in when they install their handler, so this is called again and again.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    servers = signal.getsignal(signal.SIGTERM)
    if not callable(servers) or servers is _Shutdown.handler:
        return

    def handle(number: int, frame: FrameType | None) -> None:
        begin_shutdown()
        servers(number, frame)

    _Shutdown.handler = handle
    signal.signal(signal.SIGTERM, handle)


def begin_shutdown() -> None:
    """Refuse new claims from now on, and settle after the grace period what still runs."""
    if not _Shutdown.begun:
        _Shutdown.begun = True
        for hook in _Shutdown.hooks:
            hook()
        grace = threading.Timer(get_settings().SHUTDOWN_GRACE.total_seconds(), _settle_in_flight)
        grace.daemon = True
        grace.start()


def _settle_in_flight() -> None:
    with own_connection():
        for lease in get_heartbeat().in_flight():
            lease.take()
            _settle(lease)


def _settle(lease: HeldLease) -> None:
    try:
        if lease.policy.may_run_again:
            records.end_lease(lease.claim)
        else:
            records.give_up(lease.claim, window=lease.policy.window)
    except Error:
        logger.exception("Record %s could not be settled. Its lease will end.", lease.claim.record_id)
