"""From which web pages an endpoint may be called: the project's own settings decide."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.utils.http import is_same_domain


def is_allowed(request: HttpRequest) -> bool:
    """Whether a request comes from no web page, one of the endpoint's own origin, or one in ``CSRF_TRUSTED_ORIGINS``.

    Raises:
        DisallowedHost: Its ``Host`` is none of ``ALLOWED_HOSTS``, as after a DNS rebinding. Django answers 400.
    """
    own = f"{request.scheme}://{request.get_host()}"
    origin = request.headers.get("Origin")
    return origin is None or origin.strip() == own or _is_trusted(origin.strip())


def _is_trusted(origin: str) -> bool:
    return any(_matches(origin, trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS)


def _matches(origin: str, trusted: str) -> bool:
    if "*" not in trusted:
        return origin == trusted
    # Of "https://*.example.com" what follows the asterisk, which Django reads as any subdomain.
    scheme, _, domain = trusted.partition("://*")
    try:
        came = urlsplit(origin)
    except ValueError:
        return False
    return came.scheme == scheme and is_same_domain(came.netloc, domain)
