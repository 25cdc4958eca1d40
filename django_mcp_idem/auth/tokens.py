"""Bearer tokens of our own, each bound to a user."""

from __future__ import annotations

import hashlib
import logging
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db import Error, router
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import HttpRequest

from ..conf import get_settings
from ..idempotency.clock import DatabaseNow
from ..idempotency.databases import NOTE_WAIT_MS, waiting_at_most
from ..models import BearerToken
from .callers import Caller, Unauthenticated

logger = logging.getLogger(__name__)

STAMP_INTERVAL = timedelta(minutes=1)


def issue(user: AbstractBaseUser, *, name: str, expires_at: datetime | None = None) -> tuple[BearerToken, str]:
    """Make a token for ``user``.

    Returns:
        The stored token, and its text, which cannot be had again.
    """
    token = BearerToken(user=user, name=name, expires_at=expires_at)  # type: ignore[misc]  # any user model will do
    return token, store(token)


def store(token: BearerToken) -> str:
    """Give the new ``token`` its text and save it. Returns the text, which cannot be had again."""
    text = f"mcp_{secrets.token_urlsafe(32)}"
    token.digest = digest_of(text)
    token.created_at = DatabaseNow()
    token.save(using=_writer(), force_insert=True)
    return text


def revoke(tokens: QuerySet[BearerToken]) -> int:
    """Revoke ``tokens``, from the next request on. Returns how many were valid until now."""
    return tokens.filter(revoked_at=None).update(revoked_at=DatabaseNow())


def authenticate(request: HttpRequest) -> Caller:
    """The caller of ``request``, by its ``Authorization`` header, in one query.

    Raises:
        Unauthenticated: There is no token, or it is unknown, expired, revoked or of a deactivated user.
    """
    scheme, _, text = request.headers.get("Authorization", "").strip().partition(" ")
    if not scheme and get_settings().ALLOW_ANONYMOUS:
        return Caller(user=AnonymousUser())
    if scheme.lower() != "bearer":
        raise Unauthenticated(presented=False)
    token = next(iter(_valid_tokens().filter(digest=digest_of(text.strip())).select_related("user")), None)
    if token is None or not token.user.is_active:
        raise Unauthenticated(presented=True)
    if token.stamp_due:
        _stamp(token)
    return Caller(user=token.user)


def digest_of(text: str) -> str:
    """What is stored of a token. It is random and long, so a plain SHA-256 keeps it."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(token: BearerToken) -> None:
    """Note the use of a token once a minute; a note that would have to wait is left out."""
    try:
        with waiting_at_most(NOTE_WAIT_MS, using=_writer()):
            _tokens().filter(pk=token.pk).update(last_used_at=DatabaseNow())
    except Error:
        logger.info("The use of token %s could not be noted.", token.pk, exc_info=True)


def _valid_tokens() -> QuerySet[Any]:
    unused = Q(last_used_at=None) | Q(last_used_at__lte=DatabaseNow() - STAMP_INTERVAL)
    return (
        _tokens()
        .filter(Q(expires_at=None) | Q(expires_at__gt=DatabaseNow()), revoked_at=None)
        .annotate(stamp_due=ExpressionWrapper(unused, output_field=BooleanField()))
    )


def _tokens() -> QuerySet[BearerToken]:
    return BearerToken.objects.using(_writer())


def _writer() -> str:
    # A replica may not know yet that a token was revoked.
    return router.db_for_write(BearerToken)
