"""Key and scope: what together names one record."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

MAX_KEY_LENGTH = 255
PREVIEW_LENGTH = 32


class InvalidKey(ValueError):
    """The key is not a string of 1 to 255 characters (R02)."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The authorization boundary a key is unique within (R18).

    Attributes:
        endpoint: Name of the site that was called.
        kind: What sort of identity ``subject`` is, so that two sorts can never meet.
        subject: The stable identity of the caller; never a token's text, never an address.
        client: The OAuth client acting for the subject, empty where there is none.
    """

    endpoint: str
    kind: str
    subject: str
    client: str = ""

    @property
    def digest(self) -> str:
        """The hexadecimal SHA-256 of the scope."""
        return digest(self.endpoint, self.kind, self.subject, self.client)

    def keyless(self) -> Scope:
        """The scope of the caller's calls without a key: of another kind, so that no key a client sends is in it."""
        return replace(self, kind=f"{self.kind}, no key")


@dataclass(frozen=True)
class Identity:
    """What names one record, in a form that no collation, length or index limit can merge (R01)."""

    scope_digest: str
    key_digest: str

    @classmethod
    def of(cls, scope: Scope, key: str) -> Identity:
        """The identity of the record for ``key`` within ``scope``."""
        return cls(scope.digest, digest(key))


def validate_key(value: object) -> str:
    """Return ``value`` if it can be a key; it is not trimmed, folded or normalised (R01).

    Raises:
        InvalidKey: It is not a string, is empty, or has more than 255 characters (R02).
    """
    if not isinstance(value, str):
        raise InvalidKey("The idempotency key must be a string.")
    if not value:
        raise InvalidKey("The idempotency key must not be empty.")
    if len(value) > MAX_KEY_LENGTH:
        raise InvalidKey(f"The idempotency key must have at most {MAX_KEY_LENGTH} characters.")
    return value


def derived_key(fingerprint: str) -> str:
    """The key, in a keyless scope, of all equal calls without a key. Its beginning says so to people."""
    return f"no key: {fingerprint}"


def preview(key: str) -> str:
    """The beginning of ``key``, escaped to printable ASCII, for people to recognise it by."""
    escaped = key.encode("ascii", "backslashreplace").decode()
    printable = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in escaped)
    return printable if len(printable) <= PREVIEW_LENGTH else f"{printable[: PREVIEW_LENGTH - 3]}..."


def digest(*parts: str) -> str:
    """The hexadecimal SHA-256 of ``parts``, each with its length, so that no two lists share a digest."""
    hashed = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        hashed.update(b"%d:" % len(encoded))
        hashed.update(encoded)
    return hashed.hexdigest()
