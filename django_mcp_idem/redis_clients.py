"""Clients of the Redis that is behind a cache of ``django-redis``, with patience of their own."""

from __future__ import annotations

from typing import Any

from django_redis import get_redis_connection
from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .conf import get_settings

_HEALTH_CHECK_SECONDS = 30


def impatient_client(alias: str) -> Redis:
    """A client that neither waits long nor repeats a command.

    The cache's own may do both, and a repeated SET finds the lock it has just taken.
    """
    timeout = get_settings().LOCK_TIMEOUT.total_seconds()
    return _client(alias, socket_timeout=timeout, socket_connect_timeout=timeout)


def patient_client(alias: str) -> Redis:
    """A client that waits for a message for as long as it takes, and finds out when nobody is there any more."""
    return _client(
        alias,
        socket_timeout=None,
        socket_connect_timeout=get_settings().LOCK_TIMEOUT.total_seconds(),
        socket_keepalive=True,
        health_check_interval=_HEALTH_CHECK_SECONDS,
    )


def _client(alias: str, **options: Any) -> Redis:
    pool = get_redis_connection(alias).connection_pool
    known = {**pool.connection_kwargs, "retry": Retry(NoBackoff(), 0), **options}
    return Redis(connection_pool=ConnectionPool(connection_class=pool.connection_class, **known))
