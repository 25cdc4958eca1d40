"""The example with two more tools, and a secret that the environment may choose."""

from __future__ import annotations

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS, SECRET_KEY

SECRET_KEY = os.environ.get("SECRET_KEY", SECRET_KEY)
ROOT_URLCONF = "tests.e2e.clients.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "tests.e2e.clients"]
