from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

from django_mcp_idem import site
from django_mcp_idem.asgi import mount

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.conformance.settings")
application = mount(get_asgi_application(), "/mcp", site)
