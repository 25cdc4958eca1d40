"""Settings of the example.

The environment chooses: ``DATABASE_URL`` (an SQLite file unless set), ``REDIS_URL`` (none unless set),
``MCP_LEASE_SECONDS``, ``MCP_SHUTDOWN_GRACE_SECONDS`` and ``DJANGO_DEBUG``.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import dj_database_url

from django_mcp_idem.tasks import BEAT_SCHEDULE

BASE_DIR = Path(__file__).resolve().parent.parent
DATABASE_URL = os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'db.sqlite3'}"
REDIS_URL = os.environ.get("REDIS_URL")

DEBUG = os.environ.get("DJANGO_DEBUG", "1") == "1"
SECRET_KEY = "for the example only: a real project reads its own from the environment"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", "testserver"]
ROOT_URLCONF = "example_project.urls"
ASGI_APPLICATION = "example_project.asgi.application"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_mcp_idem",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def _database() -> dict[str, Any]:
    database: dict[str, Any] = {**dj_database_url.parse(DATABASE_URL)}
    options = database.setdefault("OPTIONS", {})
    if database["ENGINE"].endswith("sqlite3"):
        # IMMEDIATE: a transaction waits for the write lock when it begins. A deferred one fails at its first write.
        options |= {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;", "timeout": 5}
    elif database["ENGINE"].endswith("postgresql"):
        # Under ASGI each request has a thread of its own: without a pool it would open a connection of its own.
        options["pool"] = {"min_size": 1, "max_size": 20}
    return database


DATABASES = {
    "default": _database(),
    # The same database over another connection, for the fake gateway: what it did, no rollback undoes.
    "gateway": {**_database(), "TEST": {"MIRROR": "default"}},
}

CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
MCP_IDEM: dict[str, Any] = {}
if lease := os.environ.get("MCP_LEASE_SECONDS"):
    MCP_IDEM["LEASE"] = timedelta(seconds=float(lease))
if grace := os.environ.get("MCP_SHUTDOWN_GRACE_SECONDS"):
    MCP_IDEM["SHUTDOWN_GRACE"] = timedelta(seconds=float(grace))
if REDIS_URL:
    CACHES["locks"] = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}
    MCP_IDEM["LOCK_CACHE"] = "locks"
    CELERY_BROKER_URL = REDIS_URL
CELERY_BEAT_SCHEDULE = {**BEAT_SCHEDULE}
