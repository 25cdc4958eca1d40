"""What the processes of a project share for a while, besides its records: answers to questions, levels of sessions.

It lies in the Redis behind the cache that the setting ``LOCK_CACHE`` names. Without one it is this process's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.core.signals import setting_changed
from django.dispatch import receiver
from redis import RedisError

from .conf import get_settings
from .redis_clients import impatient_client


class StoreUnavailable(Exception):
    """The store does not answer, or not in time."""


class SharedStore(Protocol):
    """Keeps values that JSON has under names, each for some seconds. Each method may raise ``StoreUnavailable``."""

    def get(self, name: str, /) -> Any:
        """The value; ``None`` where there is none, or none any more."""

    def set(self, name: str, value: Any, seconds: float, /) -> None:
        """Keep a value."""

    def touch(self, name: str, seconds: float, /) -> object:
        """Keep what there is for so long from now on."""

    def delete(self, name: str, /) -> object:
        """Keep it no more."""


class RedisStore:
    """The store in Redis. Unlike a cache it waits for no answer for longer than ``LOCK_TIMEOUT``.

    Args:
        alias: The cache whose server it is.
    """

    def __init__(self, alias: str) -> None:
        self._redis = impatient_client(alias)
        self._key = caches[alias].make_key

    def get(self, name: str, /) -> Any:
        with _refusing_in_time():
            found = self._redis.get(self._key(name))
        return None if found is None else json.loads(found)

    def set(self, name: str, value: Any, seconds: float, /) -> None:
        with _refusing_in_time():
            self._redis.set(self._key(name), json.dumps(value), px=_milliseconds(seconds))

    def touch(self, name: str, seconds: float, /) -> None:
        with _refusing_in_time():
            self._redis.pexpire(self._key(name), _milliseconds(seconds))

    def delete(self, name: str, /) -> None:
        with _refusing_in_time():
            self._redis.delete(self._key(name))


@contextmanager
def _refusing_in_time() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise StoreUnavailable(f"Redis does not answer ({error!r}).") from error


def get_shared_store() -> SharedStore:
    """The store that the settings name."""
    alias = get_settings().LOCK_CACHE
    return _of_this_process() if alias is None else _in_redis(alias)


@cache
def _of_this_process() -> LocMemCache:
    return LocMemCache("django_mcp_idem", {"OPTIONS": {"MAX_ENTRIES": 10_000}})


@cache
def _in_redis(alias: str) -> RedisStore:
    return RedisStore(alias)


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("CACHES", "MCP_IDEM"):
        _in_redis.cache_clear()


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
