"""The settings of the package: one documented dict, ``MCP_IDEM``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What ``settings.MCP_IDEM`` may say, with what holds where it says nothing."""

    ALLOW_ANONYMOUS: bool = False
    """Serve callers who send no credentials. Their keys are refused: they have no scope to record under."""

    LEASE: timedelta = timedelta(seconds=30)
    """How long a claim holds its key unless it is renewed, which a running body's is every third of it (R23)."""

    LOCK_CACHE: str | None = None
    """Alias of a ``django-redis`` cache that detects calls in flight. ``None``: the database does it alone."""

    LOCK_TIMEOUT: timedelta = timedelta(milliseconds=250)
    """How long a call waits for Redis before it goes on without it (R26)."""

    MAX_RUNTIME: timedelta = timedelta(minutes=5)
    """After how long a running body loses its claim, and an atomic one its transaction. A tool may name its own."""

    MESSAGE_MAX_VALUES: int = 10_000
    """How many JSON values a request over HTTP may have: what checks and compares them takes its time for each."""

    RESULT_MAX_BYTES: int = 1024 * 1024
    """Results longer than this are answered but not stored; a retry is told so, and nothing runs again."""

    RETENTION: timedelta = timedelta(hours=24)
    """How long a finished record is kept, counted from completion (R12). A tool may name its own."""

    SHUTDOWN_GRACE: timedelta = timedelta(seconds=10)
    """How long after SIGTERM running calls may end by themselves. Then they are settled as they stand (R25)."""

    UNKNOWN_RETENTION: timedelta = timedelta(days=30)
    """How long an unknown outcome is kept (R12)."""


@cache
def get_settings() -> Settings:
    """The settings in force.

    Raises:
        ImproperlyConfigured: ``MCP_IDEM`` is not a dict, names a setting that does not exist, or gives one a value of
            another type.
    """
    given: Any = getattr(settings, "MCP_IDEM", {})
    if not isinstance(given, dict):
        raise ImproperlyConfigured(f"MCP_IDEM must be a dict, not {type(given).__name__}.")
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(given) - known):
        raise ImproperlyConfigured(
            f"MCP_IDEM has no setting named {', '.join(map(repr, unknown))}. It has {', '.join(sorted(known))}."
        )
    for name, value in given.items():
        _check_type(name, value)
    return Settings(**given)


def _check_type(name: str, value: object) -> None:
    default = getattr(Settings, name)
    expected = (str, type(None)) if default is None else (type(default),)
    if type(value) not in expected:
        wanted = " or ".join(kind.__name__ for kind in expected)
        raise ImproperlyConfigured(f"MCP_IDEM: {name} must be a {wanted}, not {type(value).__name__}.")
    if isinstance(value, timedelta) and value <= timedelta(0):
        raise ImproperlyConfigured(f"MCP_IDEM: {name} must be longer than nothing.")


@receiver(setting_changed)
def _forget(*, setting: str, **_: Any) -> None:
    if setting == "MCP_IDEM":
        get_settings.cache_clear()
