"""Changes of what a site offers, told to those who listen to it, in this process and in others.

They are told by the cache that ``LOCK_CACHE`` names, which is Redis. Without one, and while Redis does not answer, they
reach this process alone. A change says that something is to be asked for again, never what it is now: one that gets
lost leaves a client with what it has.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from django.core.cache import caches
from django.core.signals import setting_changed
from django.db import transaction
from django.dispatch import receiver
from mcp.shared.subscriptions import ServerEvent, event_from_wire, event_to_notification
from redis import RedisError

from .conf import get_settings
from .redis_clients import impatient_client, patient_client

logger = logging.getLogger(__name__)

Listener = Callable[[ServerEvent], None]

# With the process's number, which alone differs after a fork.
_ORIGIN = secrets.token_hex(8)

_WAKE_SECONDS = 5.0
_RETRY_SECONDS = 1.0


def announce(site: str, change: ServerEvent, *, using: str | None = None) -> None:
    """Tell a change once it can be seen: after the transaction that the caller is in has been committed.

    Args:
        site: Name of the site.
        change: What has changed.
        using: Alias of the database whose transaction it is; ``None`` for the default one.
    """
    transaction.on_commit(partial(_tell, site, change), using=using, robust=True)


def listen(site: str, listener: Listener) -> Callable[[], None]:
    """Have changes of a site told to ``listener``, in whatever thread they are learnt in. Does not wait.

    Returns:
        What ends it.
    """
    leave = _listeners.add(site, listener)
    relay = get_relay()
    if relay is not None:
        relay.follow()
    return leave


def wait_for_other_processes() -> None:
    """Wait until changes of other processes are told too, for as long as the setting ``LOCK_TIMEOUT`` at most."""
    relay = get_relay()
    if relay is not None:
        relay.wait_until_read()


def _tell(site: str, change: ServerEvent) -> None:
    _listeners.tell(site, change)
    relay = get_relay()
    if relay is not None:
        relay.publish(site, change)


class _Listeners:
    """The listeners of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[object, tuple[str, Listener]] = {}

    def __bool__(self) -> bool:
        return bool(self._sites)

    def add(self, site: str, listener: Listener) -> Callable[[], None]:
        token = object()
        with self._lock:
            self._sites[token] = (site, listener)

        def leave() -> None:
            with self._lock:
                self._sites.pop(token, None)

        return leave

    def tell(self, site: str, change: ServerEvent) -> None:
        with self._lock:
            told = [listener for name, listener in self._sites.values() if name == site]
        for listener in told:
            listener(change)


_listeners = _Listeners()


class Relay:
    """What passes changes on between processes: one channel in Redis, read by one thread while somebody listens.

    Args:
        alias: The cache whose server it is.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._redis = impatient_client(alias)
        self._channel = caches[alias].make_key("mcp-idem:changes")
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._subscribed = threading.Event()

    def publish(self, site: str, change: ServerEvent) -> None:
        """Tell the other processes."""
        notification = event_to_notification(change, {}).model_dump(mode="json", by_alias=True, exclude_none=True)
        try:
            self._redis.publish(self._channel, json.dumps({**notification, "site": site, "from": self._own}))
        except RedisError as error:
            logger.warning("Redis does not answer (%r). A change of %s reached this process alone.", error, site)

    def follow(self) -> None:
        """Begin to pass on what other processes publish, unless that goes on already."""
        with self._lock:
            # After a fork there is the object and not the thread.
            if self._reader is None or not self._reader.is_alive():
                self._subscribed.clear()
                self._reader = threading.Thread(target=self._read, name="mcp-idem-changes", daemon=True)
                self._reader.start()

    def wait_until_read(self) -> None:
        """Wait until what other processes publish is read, for as long as the setting ``LOCK_TIMEOUT`` at most."""
        self._subscribed.wait(get_settings().LOCK_TIMEOUT.total_seconds())

    @property
    def _own(self) -> str:
        return f"{_ORIGIN}:{os.getpid()}"

    def _read(self) -> None:
        while self._is_wanted():
            try:
                self._pass_on()
            except RedisError as error:
                if self._subscribed.is_set() and self._is_wanted():
                    logger.warning("Redis does not answer (%r). Changes in other processes go unnoticed.", error)
                self._subscribed.clear()
                time.sleep(_RETRY_SECONDS)

    def _pass_on(self) -> None:
        with patient_client(self._alias).pubsub() as channel:  # type: ignore[no-untyped-call]  # redis has no hints
            channel.subscribe(self._channel)
            while self._is_wanted():
                message = channel.get_message(timeout=_WAKE_SECONDS)
                if message is not None and message["type"] == "subscribe":
                    self._subscribed.set()
                elif message is not None:
                    self._pass(json.loads(message["data"]))

    def _is_wanted(self) -> bool:
        with self._lock:
            if not _listeners:
                self._reader = None
            return self._reader is threading.current_thread()

    def _pass(self, told: dict[str, Any]) -> None:
        change = event_from_wire(told["method"], told.get("params"))
        if change is not None and told["from"] != self._own:
            _listeners.tell(told["site"], change)


@cache
def _relay(alias: str) -> Relay:
    return Relay(alias)


def get_relay() -> Relay | None:
    """The relay that the settings name, if they name one."""
    alias = get_settings().LOCK_CACHE
    return None if alias is None else _relay(alias)


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("CACHES", "MCP_IDEM"):
        _relay.cache_clear()
