"""Whose key it is, and that a key is no authority (R18, R19)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_mcp_idem.auth.tokens import issue
from django_mcp_idem.models import BearerToken, IdempotencyRecord
from django_mcp_idem.states import State
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory

pytestmark = pytest.mark.django_db

Post = Callable[..., HttpResponse]


@pytest.fixture
def call(client: Client) -> Post:
    """Calls a tool over HTTP with a token and a key."""

    def post(token: str, name: str = "atomic", label: str = "a", key: str = "k") -> HttpResponse:
        params = wire.call_params(name, {"label": label}, idempotencyKey=key)
        body = wire.message("tools/call", params)
        return client.post("/mcp", body, "application/json", headers=wire.headers(token, "tools/call", name))

    return post


def test_the_same_key_of_another_user_is_another_key(call: Post, lock_cache: str | None) -> None:
    """R18: neither a replay nor, with other arguments, a conflict."""
    alice, bob = TokenFactory(text="alice"), TokenFactory(text="bob")

    first = call("alice", label="a").json()["result"]
    second = call("bob", label="b").json()["result"]

    assert first != second
    assert Effect.objects.count() == 2
    assert set(IdempotencyRecord.objects.values_list("user_id", flat=True)) == {alice.user_id, bob.user_id}


def test_another_users_key_cannot_be_told_from_an_unused_one(call: Post) -> None:
    """R18: the same answer, but for the effect's own number, by the same statements."""
    TokenFactory(text="alice")
    TokenFactory(text="bob", last_used_at=BearerToken.objects.get().created_at.replace(year=9999))
    call("alice", key="used by alice")

    with CaptureQueriesContext(connection) as unused:
        answer_unused = call("bob", key="used by none")
    with CaptureQueriesContext(connection) as used:
        answer_used = call("bob", key="used by alice")

    assert [_shape(query["sql"]) for query in used] == [_shape(query["sql"]) for query in unused]
    assert _without_numbers(answer_used.content) == _without_numbers(answer_unused.content)
    assert dict(answer_used.headers) == dict(answer_unused.headers)


def test_a_new_token_of_the_same_user_replays(call: Post) -> None:
    """R18: the scope is the user, never the token's text."""
    user = UserFactory()
    TokenFactory(user=user, text="old")
    first = call("old")
    BearerToken.objects.all().delete()
    _, new = issue(user, name="new")

    assert call(new).content == first.content
    assert Effect.objects.count() == 1


def test_a_replay_after_the_permission_was_revoked_is_the_ordinary_denial(call: Post) -> None:
    """R19: and the record stays."""
    token = TokenFactory(text="t")
    unknown = call("t", name="guarded").content
    permission = Permission.objects.get(codename="view_effect")
    token.user.user_permissions.add(permission)
    granted = call("t", name="guarded")
    assert "result" in granted.json()

    token.user.user_permissions.remove(permission)

    assert call("t", name="guarded").content == unknown
    assert IdempotencyRecord.objects.get().state == State.DONE
    token.user.user_permissions.add(permission)
    assert call("t", name="guarded").content == granted.content
    assert Effect.objects.count() == 1


def test_a_tool_without_permission_is_answered_as_an_unknown_one(call: Post) -> None:
    """R19, R22"""
    TokenFactory(text="t")

    hidden, unknown = call("t", name="guarded"), call("t", name="missing1")

    assert hidden.status_code == unknown.status_code == 400
    assert hidden.content.replace(b"guarded", b"missing1") == unknown.content
    assert not IdempotencyRecord.objects.exists()


def test_a_tool_is_listed_to_those_who_may_call_it(user: User) -> None:
    client = mcp_client(user)
    assert "guarded" not in {tool.name for tool in client.list_tools()}

    user.user_permissions.add(Permission.objects.get(codename="view_effect"))

    # A fresh instance: Django keeps the permissions of a user on the object.
    assert "guarded" in {tool.name for tool in mcp_client(User.objects.get(pk=user.pk)).list_tools()}


@pytest.mark.parametrize(
    "change",
    [
        lambda token: token.user.__class__.objects.update(is_active=False),
        lambda token: BearerToken.objects.update(revoked_at=token.created_at),
        lambda token: BearerToken.objects.update(expires_at=token.created_at),
        lambda token: token.user.delete(),
    ],
    ids=["user deactivated", "token revoked", "token expired", "user deleted"],
)
def test_a_caller_who_lost_access_gets_no_replay(call: Post, change: Callable[[BearerToken], Any]) -> None:
    """R19: from the next request on; the record stays."""
    token = TokenFactory(text="t")
    assert call("t").status_code == 200

    change(token)

    assert call("t").status_code == 401
    assert IdempotencyRecord.objects.count() == 1


def test_an_anonymous_caller_is_refused_unless_the_project_says_so(client: Client) -> None:
    response = client.post("/mcp", wire.message("tools/list", wire.envelope()), "application/json")

    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_an_anonymous_callers_key_is_refused_and_never_ignored(client: Client, settings: Any) -> None:
    """R02, R18: there is no scope to record it under, and the capability is not declared."""
    settings.MCP_IDEM = {"ALLOW_ANONYMOUS": True}

    def post(method: str, name: str | None, params: dict[str, Any]) -> Any:
        sent = wire.headers("", method, name)
        del sent["Authorization"]
        return client.post("/mcp", wire.message(method, params), "application/json", headers=sent).json()

    refused = post("tools/call", "atomic", wire.call_params("atomic", {"label": "a"}, idempotencyKey="k"))
    assert refused["error"]["data"]["type"] == "idempotency_unsupported"
    assert not Effect.objects.exists()
    assert "idempotency" not in post("server/discover", None, wire.envelope())["result"]["capabilities"]["tools"]
    guarded = post("tools/call", "guarded", wire.call_params("guarded", {"label": "a"}, idempotencyKey="k"))
    assert guarded["error"]["message"] == "Unknown tool: guarded"
    unkeyed = post("tools/call", "atomic", wire.call_params("atomic", {"label": "a"}))
    assert unkeyed["result"]["isError"] is False


def test_the_use_of_a_token_is_noted_once_a_minute(call: Post) -> None:
    TokenFactory(text="t")
    call("t")
    noted = BearerToken.objects.get().last_used_at
    assert noted is not None

    call("t")

    assert BearerToken.objects.get().last_used_at == noted


def test_deleting_a_user_forgets_none_of_their_calls(user: User) -> None:
    mcp_client(user).call_tool("atomic", {"label": "a"}, key="k")

    user.delete()

    assert IdempotencyRecord.objects.get().user_id is None


def test_a_claim_does_not_wait_for_whoever_holds_the_users_row() -> None:
    """R05: the record's reference to its user is no foreign key in the database, and so takes no lock there."""
    table = IdempotencyRecord._meta.db_table
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, table)

    assert [constraint for constraint in constraints.values() if constraint["foreign_key"]] == []


def _shape(sql: str) -> str:
    return sql.split(" ")[0] + str(sql.count("WHERE"))


def _without_numbers(content: bytes) -> bytes:
    return bytes(byte for byte in content if byte not in b"0123456789")
