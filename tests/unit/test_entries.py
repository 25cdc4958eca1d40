"""What authors say of any tool, prompt or resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.exceptions import ImproperlyConfigured
from mcp_types import Icon

from django_mcp_idem import Site
from django_mcp_idem.entries import Entry

ICON = Icon(src="https://shop.example/icon.png", mime_type="image/png", sizes=["48x48"])


def work() -> str:
    """Works."""
    return ""


def as_tool(site: Site, **words: Any) -> Entry:
    site.tool(name="work", **words)(work)
    return site.tools[0]


def as_prompt(site: Site, **words: Any) -> Entry:
    site.prompt(name="work", **words)(work)
    return site.prompts[0]


def as_resource(site: Site, **words: Any) -> Entry:
    site.resource("shop://work", name="work", **words)(work)
    return site.resources[0]


@pytest.fixture(params=[as_tool, as_prompt, as_resource], ids=["tool", "prompt", "resource"])
def register(request: pytest.FixtureRequest) -> Callable[..., Entry]:
    """Registers ``work`` with a site of its own."""
    return lambda **words: request.param(Site("test"), **words)


def test_the_words_of_an_entry(register: Callable[..., Entry]) -> None:
    meta = {"example.com/rank": {"of": [1, None]}}

    entry = register(title="Work", description="Other words.", permission=["a.b", "c.d"], icons=[ICON], meta=meta)

    assert (entry.name, entry.title, entry.description) == ("work", "Work", "Other words.")
    assert entry.icons == (ICON,)
    assert entry.meta == meta
    assert entry.permissions == ("a.b", "c.d")


def test_what_an_entry_says_without_words(register: Callable[..., Entry]) -> None:
    entry = register()

    assert (entry.title, entry.description, entry.icons, entry.meta, entry.permissions) == (
        None,
        "Works.",
        (),
        None,
        (),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"icons": ["https://shop.example/icon.png"]}, "mcp_types.Icon", id="an address for an icon"),
        pytest.param({"meta": {"at": object()}}, "does not fit JSON", id="what JSON does not have"),
        pytest.param({"meta": {"at": float("nan")}}, "does not fit JSON", id="not a number"),
        pytest.param({"meta": ["a"]}, "must be a dict", id="a list for meta"),
    ],
)
def test_a_word_that_is_not_what_it_has_to_be_is_refused(
    register: Callable[..., Entry], words: dict[str, Any], message: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        register(**words)


@pytest.mark.django_db
def test_r19_an_entry_is_for_users_who_have_all_its_permissions(register: Callable[..., Entry], user: User) -> None:
    """R19"""
    user.user_permissions.set([Permission.objects.get(codename="view_user")])

    assert register().permits(AnonymousUser())
    assert register(permission="auth.view_user").permits(user)
    assert not register(permission=["auth.view_user", "auth.add_user"]).permits(user)
    assert not register(permission="auth.view_user").permits(AnonymousUser())
