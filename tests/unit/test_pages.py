"""Lists in pages, and cursors that any server understands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mcp_idem.entries import Entry
from django_mcp_idem.pages import InvalidCursor, page_of


def entries(*names: str) -> Sequence[Entry]:
    return [Entry(name=name, title=None, description="", icons=(), meta=None, permissions=()) for name in names]


def names(found: Sequence[Entry]) -> list[str]:
    return [entry.name for entry in found]


@given(st.lists(st.text(), unique=True, max_size=30), st.integers(min_value=1, max_value=31))
def test_the_pages_together_are_the_list_in_its_order(listed: list[str], size: int) -> None:
    whole = entries(*listed)

    page = page_of(whole, cursor=None, size=size)
    seen = [page]
    while page.next_cursor is not None:
        page = page_of(whole, cursor=page.next_cursor, size=size)
        seen.append(page)

    assert [name for page in seen for name in names(page.entries)] == listed
    assert all(len(page.entries) == size for page in seen[:-1])
    assert seen[-1].entries or not listed


def test_a_cursor_keeps_its_place_when_a_deploy_adds_and_removes_others() -> None:
    cursor = page_of(entries("a", "b", "c", "d"), cursor=None, size=2).next_cursor

    after = page_of(entries("new", "b", "c", "newer", "d"), cursor=cursor, size=9)

    assert names(after.entries) == ["c", "newer", "d"]


def test_a_cursor_never_changes() -> None:
    """Another worker and another release have to understand it."""
    cursor = page_of(entries("a", "b"), cursor=None, size=1).next_cursor

    assert cursor == "4162fddd39a3e4225e8e2392eced237fbeb34e6e218b5647d27bd4d2b9c0da24"


@pytest.mark.parametrize("cursor", ["", "a", "0", "a" * 64])
def test_a_cursor_that_names_nothing_is_invalid(cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        page_of(entries("a", "b"), cursor=cursor, size=1)


def test_a_cursor_of_what_is_gone_or_hidden_is_invalid() -> None:
    cursor = page_of(entries("a", "b", "c"), cursor=None, size=2).next_cursor

    with pytest.raises(InvalidCursor):
        page_of(entries("a", "c"), cursor=cursor, size=2)
