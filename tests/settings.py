"""Settings of the test project."""

from __future__ import annotations

from typing import Any

import dj_database_url

from tests.services import database_url, directory, redis_url

SECRET_KEY = "for tests only"
USE_TZ = True
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_mcp_idem",
    "tests.app",
]
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def _database() -> dict[str, Any]:
    database: dict[str, Any] = dict(dj_database_url.parse(database_url()))
    if database["ENGINE"].endswith("sqlite3"):
        # A file, since several threads and processes share it.
        database["TEST"] = {"NAME": str(directory() / "tests.sqlite3")}
        database["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL;"}
    return database


DATABASES = {
    "default": _database(),
    # The same database over another connection, and so another transaction.
    "other": {**_database(), "TEST": {"MIRROR": "default"}},
}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "locks": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url()},
}
