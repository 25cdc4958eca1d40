"""Calls in flight, seen by Redis before the database is asked.

A lock may only ever say no (R26): it keeps a storm of duplicates away from the claim. Whether a body runs is decided
by the record alone, so that losing, flushing or never having Redis changes nothing but the load.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, cast

from django.core.cache import caches
from django.core.signals import setting_changed
from django.dispatch import receiver
from redis import RedisError

from ..conf import get_settings
from ..redis_clients import impatient_client
from .equivalence import VERSION
from .keys import Identity

logger = logging.getLogger(__name__)

# Release and renew only what is still our own: after a lapse the lock may be another's.
_COMPARE_AND_DELETE = """
if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
return 0
"""
_COMPARE_AND_EXPIRE = """
if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end
return 0
"""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who holds a lock, and for which call.

    Attributes:
        owner: The owner token of the claim.
        fingerprint: The fingerprint of its call.
        fingerprint_version: The version of that fingerprint.
    """

    owner: str
    fingerprint: str
    fingerprint_version: int = VERSION

    def __str__(self) -> str:
        return f"{self.owner}:{self.fingerprint_version}:{self.fingerprint}"

    @classmethod
    def parse(cls, text: str) -> Holder:
        """The inverse of ``str()``."""
        owner, version, fingerprint = text.split(":")
        return cls(owner=owner, fingerprint=fingerprint, fingerprint_version=int(version))


class Lock(Protocol):
    """Detects calls in flight."""

    def acquire(self, identity: Identity, holder: Holder) -> Holder | None:
        """Take the lock. Returns who else holds it; ``None`` if the way is free, as far as can be told."""

    def renew(self, identity: Identity, holder: Holder) -> None:
        """Hold the lock for another lease if it is still held."""

    def release(self, identity: Identity, holder: Holder) -> None:
        """Give the lock back if it is still held."""


class NoLock:
    """For projects without Redis: the record alone detects calls in flight."""

    def acquire(self, identity: Identity, holder: Holder) -> Holder | None:
        return None

    def renew(self, identity: Identity, holder: Holder) -> None:
        pass

    def release(self, identity: Identity, holder: Holder) -> None:
        pass


class RedisLock:
    """One Redis key for each call in flight, gone by itself when the lease is over."""

    def __init__(self, alias: str) -> None:
        self._redis = impatient_client(alias)
        self._key = caches[alias].make_key
        self._failures = 0

    def acquire(self, identity: Identity, holder: Holder) -> Holder | None:
        try:
            taken = self._redis.set(self._name(identity), str(holder), nx=True, px=_lease_ms())
            other = None if taken else self._other(identity, holder)
        except RedisError as error:
            self._note_failure(error)
            return None
        self._note_success()
        return other

    def renew(self, identity: Identity, holder: Holder) -> None:
        self._if_own(_COMPARE_AND_EXPIRE, identity, holder, _lease_ms())

    def release(self, identity: Identity, holder: Holder) -> None:
        self._if_own(_COMPARE_AND_DELETE, identity, holder)

    def _if_own(self, script: str, identity: Identity, holder: Holder, *arguments: int) -> None:
        try:
            self._redis.eval(script, 1, self._name(identity), str(holder), *arguments)
        except RedisError as error:
            self._note_failure(error)

    def _other(self, identity: Identity, holder: Holder) -> Holder | None:
        found = cast("bytes | None", self._redis.get(self._name(identity)))
        # Our own, where the reply to SET was lost and the command sent again.
        if found is None or found.decode() == str(holder):
            return None
        return Holder.parse(found.decode())

    def _name(self, identity: Identity) -> str:
        return self._key(f"mcp-idem:{identity.scope_digest}:{identity.key_digest}")

    def _note_failure(self, error: RedisError) -> None:
        if not self._failures:
            logger.warning("Redis does not answer (%r). Keyed calls go on, on the database alone.", error)
        self._failures += 1

    def _note_success(self) -> None:
        if self._failures:
            logger.warning("Redis answers again, after %d commands that it did not.", self._failures)
        self._failures = 0


def _lease_ms() -> int:
    return int(get_settings().LEASE.total_seconds() * 1000)


@cache
def _redis_lock(alias: str) -> RedisLock:
    return RedisLock(alias)


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting in ("CACHES", "MCP_IDEM"):
        _redis_lock.cache_clear()


def get_lock() -> Lock:
    """The lock that the settings name."""
    alias = get_settings().LOCK_CACHE
    return NoLock() if alias is None else _redis_lock(alias)
