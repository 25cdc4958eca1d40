"""The caller of a request, and the scope that its keys are unique within."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser

from ..idempotency.keys import Scope, digest


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is calling, by an identity that outlives tokens and sessions (R18).

    Attributes:
        user: The user; permissions are theirs.
    """

    user: AbstractBaseUser | AnonymousUser

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody signed in, so that there is no scope to record a key under."""
        return self.user.is_anonymous

    def identity(self, endpoint: str) -> str:
        """What tells the caller from others at one endpoint. Nothing tells one anonymous caller from another."""
        return digest(endpoint) if self.is_anonymous else self.scope(endpoint).digest

    def scope(self, endpoint: str) -> Scope:
        """The scope of the caller's keys at one endpoint.

        Raises:
            ValueError: The caller is anonymous.
        """
        if self.is_anonymous:
            raise ValueError("An anonymous caller has no scope.")
        return Scope(endpoint=endpoint, kind="user", subject=str(self.user.pk))


class Unauthenticated(Exception):
    """The request carries no credentials that are accepted.

    Attributes:
        presented: Whether it carried any.
    """

    def __init__(self, *, presented: bool) -> None:
        super().__init__("The credentials were not accepted." if presented else "There were no credentials.")
        self.presented = presented
