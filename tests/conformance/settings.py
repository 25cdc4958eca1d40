"""Settings of the everything-server that the official conformance suite is run against."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "tests.conformance.urls"
INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "tests.app"] + ["tests.conformance"]  # noqa: F405
# The suite cannot send a token.
MCP_IDEM = {"ALLOW_ANONYMOUS": True}
