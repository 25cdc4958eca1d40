"""When two calls are the same call: the canonical form and the fingerprint of arguments (R08 to R10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from .keys import digest

VERSION = 1


class UnknownVersion(LookupError):
    """The fingerprint was made by an algorithm that this release does not have."""


def fingerprint(tool: str, arguments: Mapping[str, Any], *, version: int = VERSION) -> str:
    """The fingerprint of a call; equal for equivalent calls and for no others (R08).

    Args:
        tool: Name of the tool.
        arguments: The arguments as they were sent, before defaults are filled in (R09).
        version: The algorithm to use: a stored record is compared by the one that made it (R10).

    Returns:
        A hexadecimal SHA-256.

    Raises:
        UnknownVersion: There is no such version.
        ValueError: ``arguments`` hold NaN or an infinity, which JSON does not have.
    """
    try:
        canonical = _CANONICAL_FORMS[version]
    except KeyError:
        raise UnknownVersion(version) from None
    return digest(f"v{version}", tool, canonical(arguments))


def canonical_form(value: Any) -> str:
    """The one spelling of a parsed JSON value: members sorted, ASCII only, each number by its value.

    A float that is a whole number is written as the integer that its shortest decimal spelling names, so that
    ``1``, ``1.0`` and ``1e0`` agree, and ``1e23`` is 10 to the 23rd and not its binary neighbour.

    Raises:
        ValueError: ``value`` holds NaN or an infinity.
    """
    return json.dumps(_whole_numbers(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    if isinstance(value, Mapping):
        return {name: _whole_numbers(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return value


# A version that was ever released stays here: records made by it are still compared.
_CANONICAL_FORMS: dict[int, Callable[[Any], str]] = {1: canonical_form}
