"""The endpoint in Django's own ASGI handler, without the middleware of the project."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.handlers.exception import convert_exception_to_response

from ..asgi import ASGIApplication
from ..registry import Site
from .http import make_view


def mounted(application: ASGIApplication, path: str, site: Site) -> ASGIApplication:
    """A site at a path, and another application everywhere else; see ``django_mcp_idem.asgi.mount``."""
    if not path.startswith("/"):
        raise ImproperlyConfigured(f"The path to mount {site!r} at is {path!r}; it must begin with a slash.")
    # Where projects say what a site does. Django would load it at the first request of another view.
    import_module(settings.ROOT_URLCONF)
    endpoint = Endpoint(site)
    bare = path.rstrip("/")
    paths = (bare, f"{bare}/")

    async def application_with_endpoint(scope: dict[str, Any], receive: Any, send: Any) -> None:
        serves = endpoint if scope["type"] == "http" and _path_in_project(scope) in paths else application
        await serves(scope, receive, send)

    return application_with_endpoint


class Endpoint(ASGIHandler):
    """Django's handler of requests, with the view of a site where the project's middleware would be."""

    def __init__(self, site: Site) -> None:
        self._view = make_view(site)
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """Load none.

        The chain has no public name. ``get_response_async``, which has one and runs the chain, also logs what was
        refused and closes the request: in its place that would have to be written once more.
        """
        self._middleware_chain = convert_exception_to_response(self._view)


def _path_in_project(scope: dict[str, Any]) -> str:
    """The path as the URLconf would see it. Some servers have taken the prefix off, some have not."""
    path: str = scope["path"]
    return path.removeprefix(get_script_prefix(scope).rstrip("/"))
