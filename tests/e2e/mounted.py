"""A project with its endpoint mounted, in front of the view: at the paths that the tests have it at."""

from __future__ import annotations

from django.core.asgi import get_asgi_application

from django_mcp_idem import site
from django_mcp_idem.asgi import mount

application = mount(mount(get_asgi_application(), "/mcp", site), "/api/v1/mcp", site)
