from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django_redis import get_redis_connection

from django_mcp_idem import ToolContext
from tests.app import mcp_tools
from tests.factories import UserFactory


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needless = [item for item in items if not _is_about_this_database(item)]
    config.hook.pytest_deselected(items=needless)
    items[:] = [item for item in items if item not in needless]


def _is_about_this_database(item: pytest.Item) -> bool:
    vendor = item.get_closest_marker("vendor")
    if vendor is not None and connection.vendor not in vendor.args:
        return False
    return connection.features.has_select_for_update or item.get_closest_marker("row_locks") is None


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


@pytest.fixture
def probe_says() -> Iterator[list[Callable[[ToolContext, str], int]]]:
    """What the probe of the tool ``probed`` does."""
    yield mcp_tools.probe_says
    mcp_tools.probe_says.clear()
