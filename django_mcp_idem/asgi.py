"""The endpoint as an ASGI application, for a project's ``asgi.py``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .registry import Site

ASGIApplication = Callable[[Any, Any, Any], Awaitable[None]]
"""Takes scope, receive and send, which every framework has types of its own for."""


def mount(application: ASGIApplication, path: str, site: Site) -> ASGIApplication:
    """Serve a site at a path, and all else by another application: HTTP elsewhere, WebSockets, the server's lifespan.

    It is the view that ``path("mcp", site)`` routes to, in Django's handling of a request, with its signals, threads
    and database connections, and without the middleware of the project.

    Args:
        application: What serves all else, such as ``get_asgi_application()``. The apps have to be loaded by now.
        path: Where the endpoint is, such as ``"/mcp"``, below the path that the whole project is served at. It answers
            there with and without a trailing slash.
        site: The site.

    Returns:
        The application that does both.

    Raises:
        ImproperlyConfigured: The path does not begin with a slash.
    """
    # It needs the models, which may load after this module.
    from .transport.mount import mounted

    return mounted(application, path, site)
