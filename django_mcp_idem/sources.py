"""Where the key of a call may stand: in ``params`` always, and in three other places if the site says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .idempotency.keys import MAX_KEY_LENGTH, InvalidKey, validate_key
from .namespace import KEY

if TYPE_CHECKING:
    from .registry import Site

JSON = dict[str, Any]

PARAM = "idempotencyKey"
HEADER = "Idempotency-Key"

# The string of RFC 9651, and beside it what clients send that do not quote: no comma, since that is how two headers
# arrive, and none of the characters that mean something around a string.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]*")


@dataclass(frozen=True, kw_only=True)
class SentKey:
    """The key of a call as it was sent, in one place or in several. It is false where there is none.

    Attributes:
        in_body: The values that stand in the body, of whatever type they are.
        in_header: The value of the header.
    """

    in_body: tuple[object, ...] = ()
    in_header: str | None = None

    def __bool__(self) -> bool:
        return bool(self.in_body) or self.in_header is not None

    def agreed(self) -> str:
        """The one key that was sent.

        Raises:
            InvalidKey: A value is no key, or two of them differ (R02).
        """
        keys = {validate_key(value) for value in self.in_body}
        if self.in_header is not None:
            keys.add(validate_key(_unquoted(self.in_header)))
        if len(keys) != 1:
            raise InvalidKey("The idempotency keys of this call differ. Send one, or the same in each place.")
        return keys.pop()


def sent_key(site: Site, params: Mapping[str, Any], headers: Mapping[str, str]) -> SentKey:
    """The key of a call.

    Args:
        site: The endpoint, which says where a key may stand.
        params: The call's params as they were parsed.
        headers: The headers of the HTTP request, if it came over HTTP.
    """
    members: list[tuple[object, str]] = [(params, PARAM)]
    if site.idempotency_key_in_meta:
        members.append((params.get("_meta"), KEY))
    if site.idempotency_key_argument is not None:
        members.append((params.get("arguments"), site.idempotency_key_argument))
    header = headers.get(HEADER) if site.idempotency_key_in_header else None
    return SentKey(
        in_body=tuple(parent[name] for parent, name in members if isinstance(parent, Mapping) and name in parent),
        # Some servers leave the white space around a value, which is no part of it.
        in_header=None if header is None else header.strip(" \t"),
    )


def places(site: Site) -> dict[str, str]:
    """Where a site takes keys from: the name that each place goes by, and the key's own name there."""
    found = {"params": PARAM}
    if site.idempotency_key_in_meta:
        found["_meta"] = KEY
    if site.idempotency_key_in_header:
        found["header"] = HEADER
    if site.idempotency_key_argument is not None:
        found["argument"] = site.idempotency_key_argument
    return found


def with_key_argument(schema: JSON, name: str, *, required: bool) -> JSON:
    """An input schema with one more property, for the key.

    Args:
        schema: The schema of a tool's parameters.
        name: The property's name.
        required: Whether the tool has to be called with a key.
    """
    properties = {**schema.get("properties", {}), name: _KEY_SCHEMA}
    if not required:
        return {**schema, "properties": properties}
    return {**schema, "properties": properties, "required": [*schema.get("required", []), name]}


_KEY_SCHEMA: JSON = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_KEY_LENGTH,
    "description": (
        "Makes it safe to repeat this call. Make up a new value, such as a UUID, for each time that the effect is "
        "wanted. To retry a call whose answer was lost, send the same value with the same other arguments: you get "
        "the first answer, and nothing is done twice."
    ),
}


def _unquoted(value: str) -> str:
    """The key in the header's value: an ``sf-string``, as the IETF draft has it, or the bare characters of one.

    Raises:
        InvalidKey: It is neither.
    """
    if quoted := _QUOTED.fullmatch(value):
        return re.sub(r'\\(["\\])', r"\1", quoted[1])
    if _BARE.fullmatch(value):
        return value
    raise InvalidKey(
        f'The header {HEADER} must be sent once, as a string of printable ASCII in double quotes: "order-1001". '
        f"Send a key with other characters as params.{PARAM}."
    )
