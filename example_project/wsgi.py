"""The example under WSGI, with the admin's static files while ``DEBUG`` is on."""

from __future__ import annotations

import os

from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

django_application = get_wsgi_application()
application = StaticFilesHandler(django_application) if settings.DEBUG else django_application
