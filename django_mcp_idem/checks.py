"""System checks: what can be seen to be wrong before the first call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.cache import InvalidCacheBackendError, caches
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver
from django_redis.cache import RedisCache

from .conf import get_settings
from .idempotency.databases import writer
from .registry import SiteURLs

# Django's test runner makes one of this name, in a process of its own.
_TEST_DATABASE = "file:memorydb_"


@register()
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """``MCP_IDEM`` can be read."""
    try:
        get_settings()
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See the table of settings in the README.", id="django_mcp_idem.E001")]
    return []


@register()
def check_store_is_shared(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every process sees the same records and locks (R14)."""
    return [*_check_lock_cache(), *_check_database()]


@register(Tags.urls)
def check_route(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """No site is routed at a URL that ends in a slash."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    return [
        Warning(
            f"The MCP endpoint is routed at {route!r}, which ends in a slash.",
            hint=(
                "A client that leaves the slash out is redirected, and the redirect loses its POST. "
                f"Route it at {route.rstrip('/')!r}: it answers there with and without the slash."
            ),
            id="django_mcp_idem.W001",
        )
        for route in _site_routes(get_resolver().url_patterns, "")
        if route.endswith("/")
    ]


def _check_lock_cache() -> Iterator[CheckMessage]:
    try:
        alias = get_settings().LOCK_CACHE
    except ImproperlyConfigured:
        return
    if alias is None:
        return
    try:
        cache = caches[alias]
    except InvalidCacheBackendError as error:
        yield Error(
            f"MCP_IDEM names the cache {alias!r} as LOCK_CACHE, and it cannot be had: {error}",
            hint="Name a django-redis cache, or leave LOCK_CACHE out.",
            id="django_mcp_idem.E002",
        )
        return
    if not isinstance(cache, RedisCache):
        kind = f"{type(cache).__module__}.{type(cache).__name__}"
        yield Error(
            f"The cache {alias!r}, which MCP_IDEM names as LOCK_CACHE, is a {kind}.",
            hint="Locks need a cache of django-redis, which every process shares. Without Redis leave LOCK_CACHE out.",
            id="django_mcp_idem.E003",
        )


def _check_database() -> Iterator[CheckMessage]:
    connection = connections[writer()]
    if connection.vendor != "sqlite" or str(connection.settings_dict["NAME"]).startswith(_TEST_DATABASE):
        return
    if connection.is_in_memory_db():  # type: ignore[attr-defined]  # SQLite's connection has it
        yield Error(
            f"The idempotency records are in the database {connection.alias!r}, an SQLite database in memory.",
            hint="Every process would have records of its own. Use a file, or a database server.",
            id="django_mcp_idem.E004",
        )


def _site_routes(patterns: Sequence[URLPattern | URLResolver], prefix: str) -> Iterator[str]:
    for pattern in patterns:
        if not isinstance(pattern, URLResolver):
            continue
        route = f"{prefix}{pattern.pattern}"
        if isinstance(pattern.urlconf_name, SiteURLs):
            yield route
        else:
            yield from _site_routes(pattern.url_patterns, route)
