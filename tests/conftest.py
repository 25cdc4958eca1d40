from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django_redis import get_redis_connection

from tests.app import mcp_tools
from tests.factories import UserFactory


@pytest.fixture
def user(db: None) -> User:
    return UserFactory()


@pytest.fixture(params=["without Redis", "with Redis"])
def lock_cache(request: pytest.FixtureRequest, settings: pytest.FixtureRequest) -> str | None:
    """Runs a test once on the database alone and once with locks in an empty Redis."""
    alias = "locks" if request.param == "with Redis" else None
    settings.MCP_IDEM = {"LOCK_CACHE": alias}
    get_redis_connection("locks").flushdb()
    return alias


@pytest.fixture
def during() -> Iterator[list[Callable[[], None]]]:
    """What the test tools do in the middle of their bodies."""
    yield mcp_tools.during
    mcp_tools.during.clear()
