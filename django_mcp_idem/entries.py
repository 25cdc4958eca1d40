"""What tools, prompts and resources have in common: a name, words for people, and who may see them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from mcp_types import Icon

from . import jsontext

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

JSON = dict[str, Any]

MAX_NAME_LENGTH = 128
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that a site lists.

    Attributes:
        name: What it is called by.
        title: What people see.
        description: What the model reads.
        icons: Pictures for people.
        meta: What clients find in its ``_meta``.
        permissions: What the caller's user must have, all of them.
    """

    name: str
    title: str | None
    description: str
    icons: tuple[Icon, ...]
    meta: JSON | None
    permissions: tuple[str, ...]

    @property
    def identity(self) -> str:
        """What tells it from all others of its list, also after a deploy."""
        return self.name

    def permits(self, user: AbstractBaseUser | AnonymousUser) -> bool:
        """Whether ``user`` may see and use it."""
        return not self.permissions or bool(getattr(user, "has_perms", _has_none)(self.permissions))


def check_name(name: str, *, kind: str) -> None:
    """
    Raises:
        ImproperlyConfigured: Clients could not call something by ``name``.
    """
    if not 0 < len(name) <= MAX_NAME_LENGTH or not _NAME_CHARACTERS.issuperset(name):
        raise ImproperlyConfigured(
            f"{name!r} cannot name a {kind}: use 1 to {MAX_NAME_LENGTH} ASCII letters, digits, '_', '-' and '.'."
        )


def read_description(function: Callable[..., Any], description: str | None) -> str:
    """What the model reads: the docstring if the author gave nothing else."""
    return inspect.getdoc(function) or "" if description is None else description


def read_permissions(permission: str | Sequence[str]) -> tuple[str, ...]:
    """All the permissions that an author asked for."""
    return (permission,) if isinstance(permission, str) else tuple(permission)


def read_icons(icons: Sequence[Icon], *, label: str) -> tuple[Icon, ...]:
    """
    Raises:
        ImproperlyConfigured: One of them is none.
    """
    if not all(isinstance(icon, Icon) for icon in icons):
        raise ImproperlyConfigured(f"{label}: icons must be a list of mcp_types.Icon.")
    return tuple(icons)


def read_meta(meta: Mapping[str, Any] | None, *, label: str) -> JSON | None:
    """
    Raises:
        ImproperlyConfigured: It is no JSON object.
    """
    return None if meta is None else read_object(meta, label=f"{label}: meta")


def read_object(value: Mapping[str, Any], *, label: str) -> JSON:
    """A JSON object that an author gave, as a copy that nobody else changes.

    Raises:
        ImproperlyConfigured: It is none.
    """
    try:
        written: Any = jsontext.parse(jsontext.write(value))
    except ValueError as error:
        raise ImproperlyConfigured(f"{label} does not fit JSON: {error}") from error
    if not isinstance(written, dict):
        raise ImproperlyConfigured(f"{label} is {value!r}; it must be a dict.")
    return written


def _has_none(permissions: Sequence[str]) -> bool:
    return False
