from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django_redis import get_redis_connection

from tests.app import mcp_tools
from tests.factories import UserFactory


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if connection.features.has_select_for_update:
        return
    needless = [item for item in items if item.get_closest_marker("row_locks")]
    config.hook.pytest_deselected(items=needless)
    items[:] = [item for item in items if item not in needless]


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
