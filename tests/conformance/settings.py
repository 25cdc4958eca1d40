"""Settings of the everything-server that the official conformance suite is run against.

``REDIS_URL`` names a Redis, which several processes need. No table is made: the suite cannot send a token, and nothing
is recorded of an anonymous caller.
"""

from __future__ import annotations

from example_project.settings import *  # noqa: F403
from example_project.settings import MCP_IDEM

ROOT_URLCONF = "tests.conformance.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_mcp_idem",
    "tests.conformance",
]
MCP_IDEM = {**MCP_IDEM, "ALLOW_ANONYMOUS": True}
