"""Long lists in pages: a cursor names the last entry of a page, and any server finds its place again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .entries import Entry
from .idempotency.keys import digest

E = TypeVar("E", bound=Entry)


class InvalidCursor(ValueError):
    """The cursor names no entry of the list, or none any more."""


@dataclass(frozen=True, kw_only=True)
class Page(Generic[E]):
    """One page of a list.

    Attributes:
        entries: What stands on it.
        next_cursor: What the next page is asked for with; ``None`` on the last page.
    """

    entries: Sequence[E]
    next_cursor: str | None


def page_of(entries: Sequence[E], *, cursor: str | None, size: int) -> Page[E]:
    """The page after ``cursor``.

    A cursor is the digest of an identity, not a number: what a deploy inserts or removes elsewhere in the list moves
    nothing. It is looked for among ``entries`` alone, so that it tells nothing of what a caller may not see.

    Args:
        entries: The whole list as the caller may see it.
        cursor: The ``next_cursor`` of the page before; ``None`` for the first page.
        size: How many entries a page has at most.

    Raises:
        InvalidCursor: The entry that it named is not in the list.
    """
    start = 0 if cursor is None else _after(cursor, entries)
    page = entries[start : start + size]
    more = start + size < len(entries)
    return Page(entries=page, next_cursor=_cursor(page[-1]) if more else None)


def _after(cursor: str, entries: Sequence[Entry]) -> int:
    for at, entry in enumerate(entries):
        if _cursor(entry) == cursor:
            return at + 1
    raise InvalidCursor(cursor)


def _cursor(entry: Entry) -> str:
    return digest(entry.identity)
