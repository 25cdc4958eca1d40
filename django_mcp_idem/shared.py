"""What the processes of a project share for a while, besides its records: answers to questions, levels of sessions.

It lies in the cache that the setting ``LOCK_CACHE`` names. Without one it is this process's own.
"""

from __future__ import annotations

from functools import cache

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache

from .conf import get_settings


def get_shared_cache() -> BaseCache:
    """The cache."""
    alias = get_settings().LOCK_CACHE
    return _of_this_process() if alias is None else caches[alias]


@cache
def _of_this_process() -> BaseCache:
    return LocMemCache("django_mcp_idem", {"OPTIONS": {"MAX_ENTRIES": 10_000}})
