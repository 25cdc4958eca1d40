"""The example in a project that makes it hard: a transaction around each request on two databases, a login page in
front of every view, and no sessions app.
"""

from __future__ import annotations

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES, MIDDLEWARE

ROOT_URLCONF = "tests.e2e.hostile.urls"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp_idem",
    "example_project.shop",
]
MIDDLEWARE = [
    *(middleware for middleware in MIDDLEWARE if "messages" not in middleware),
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
]
DATABASES = {alias: {**database, "ATOMIC_REQUESTS": True} for alias, database in DATABASES.items()}
