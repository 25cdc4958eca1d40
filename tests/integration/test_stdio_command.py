"""``manage.py mcp_stdio`` that cannot begin."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(CommandError, match=r"There is no user 'nobody'\. Name one that exists"):
        call_command("mcp_stdio", user="nobody")


def test_r19_an_inactive_user_is_refused() -> None:
    """R19: at the start, and at each request later on."""
    UserFactory(username="gone", is_active=False)

    with pytest.raises(CommandError, match=r"The user 'gone' is not active\. Name another one"):
        call_command("mcp_stdio", user="gone")


def test_an_unknown_site_is_refused() -> None:
    UserFactory(username="alice")

    with pytest.raises(CommandError, match=r"There is no site named 'elsewhere'\. Name one"):
        call_command("mcp_stdio", user="alice", site="elsewhere")


def test_a_user_has_to_be_named() -> None:
    with pytest.raises(CommandError, match=r"--user"):
        call_command("mcp_stdio")
