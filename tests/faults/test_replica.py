"""A replica as the database for reads: it may lag behind, and so is never asked about a key (R14, R23)."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from mcp.shared.exceptions import MCPError
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect
from tests.factories import RecordFactory

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class ReadFromOther:
    """Sends reads to the database that stands for a replica."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "other"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


@pytest.fixture(autouse=True)
def replica(settings: DjangoSettings) -> Any:
    """Routes reads to a replica that knows of no record; whoever asks it for one fails."""
    settings.DATABASE_ROUTERS = [f"{__name__}.ReadFromOther"]

    def know_nothing(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        assert IdempotencyRecord._meta.db_table not in sql
        return execute(sql, params, many, context)

    with connections["other"].execute_wrapper(know_nothing):
        yield


@pytest.mark.parametrize("tool", ["atomic", "external", "rerun_safe"])
def test_a_retry_is_answered_whatever_the_replica_knows(user: User, lock_cache: str | None, tool: str) -> None:
    """R06, R07, R14"""
    client = mcp_client(user)

    first = client.call_tool(tool, {"label": "a"}, key="k")

    assert client.call_tool(tool, {"label": "a"}, key="k") == first
    with pytest.raises(MCPError) as refused:
        client.call_tool(tool, {"label": "b"}, key="k")
    assert refused.value.data["type"] == "idempotency_key_conflict"
    assert Effect.objects.using("default").count() == 1


@pytest.mark.parametrize(
    ("tool", "traits", "reason"),
    [
        ("atomic", {"lapsed": True}, None),
        ("external", {"lapsed": True}, "idempotency_outcome_unknown"),
        ("external", {"running": True}, "idempotency_key_in_progress"),
        ("external", {"expired": True}, None),
    ],
)
def test_every_decision_is_made_on_the_writer(
    user: User, tool: str, traits: dict[str, bool], reason: str | None
) -> None:
    """R14, R23"""
    RecordFactory(user=user, key="k", tool=tool, arguments={"label": "a"}, **traits)
    client = mcp_client(user)

    if reason is None:
        assert not client.call_tool(tool, {"label": "a"}, key="k").is_error
    else:
        with pytest.raises(MCPError) as refused:
            client.call_tool(tool, {"label": "a"}, key="k")
        assert refused.value.data["type"] == reason
