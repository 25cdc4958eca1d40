"""What a client is told: that its keys are kept, for how long, and that an answer is a replay (R03, R06, R13)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Max
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from mcp_types import InitializeResult, ServerCapabilities
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import Site
from django_mcp_idem import site as default_site
from django_mcp_idem.idempotency.clock import in_utc
from django_mcp_idem.idempotency.outcomes import Reason, Refused
from django_mcp_idem.models import IdempotencyRecord
from django_mcp_idem.protocol import RefusedError
from django_mcp_idem.sources import SentKey
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import RecordFactory, TokenFactory
from tests.integration.test_replay import ODD_VALUES

pytestmark = pytest.mark.django_db

ABOUT_KEYS = "django-mcp-idem/idempotency"
REPLAYED = "django-mcp-idem/replayed"
HEADER = "Idempotency-Replayed"

told = Site("told", idempotency_key_in_header=True)
urlpatterns = [path("mcp", default_site), path("told", told)]


@told.tool
def plain() -> None: ...


@told.tool(key="required", retention=timedelta(days=7))
def careful() -> None: ...


@told.tool(deduplicate_within=timedelta(seconds=2.5))
def deduplicated() -> None: ...


@pytest.fixture(autouse=True)
def _routes(settings: DjangoSettings) -> None:
    settings.ROOT_URLCONF = __name__


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default site marks replays, as sites do unless they say otherwise."""
    monkeypatch.setattr(default_site, "mark_replays", True)


def capabilities(client: Client, version: str, *, url: str = "/told", token: str | None = "t") -> dict[str, Any]:
    """What a site says of itself at the begin."""
    method, params = "server/discover", wire.envelope(version)
    if version != wire.MODERN:
        method = "initialize"
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    sent = wire.headers(token or "", method, version=version)
    if token is None:
        del sent["Authorization"]
    answer = client.post(url, wire.message(method, params), "application/json", headers=sent).json()
    found: dict[str, Any] = answer["result"]["capabilities"]
    return found


def post(client: Client, name: str, arguments: dict[str, Any], version: str = wire.MODERN) -> HttpResponse:
    body = wire.message("tools/call", wire.call_params(name, arguments, version, idempotencyKey="k"))
    sent = wire.headers("t", "tools/call", name, version)
    response: HttpResponse = client.post("/mcp", body, "application/json", headers=sent)
    return response


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_the_capability_is_said_again_where_clients_keep_it(client: Client, version: str) -> None:
    """R03, R13: with the retention window and where keys may stand; the proposal's own object has no fields."""
    TokenFactory(text="t")

    found = capabilities(client, version)

    about_keys = {"retentionSeconds": 86400, "keyIn": {"params": "idempotencyKey", "header": "Idempotency-Key"}}
    assert found["tools"]["idempotency"] == {}
    assert found["extensions"][ABOUT_KEYS] == about_keys
    assert found["experimental"][ABOUT_KEYS] == about_keys


def test_the_official_models_keep_what_is_said_again(client: Client) -> None:
    """R03: what the Python client gives its user."""
    TokenFactory(text="t")

    modern = ServerCapabilities.model_validate(capabilities(client, wire.MODERN))
    handshake = InitializeResult.model_validate(
        {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "serverInfo": {"name": "s", "version": "1"},
            "capabilities": capabilities(client, LATEST_HANDSHAKE_VERSION),
        }
    ).capabilities

    for parsed in (modern, handshake):
        assert parsed.extensions is not None
        assert parsed.experimental is not None
        assert parsed.extensions[ABOUT_KEYS]["retentionSeconds"] == 86400
        assert parsed.experimental[ABOUT_KEYS]["retentionSeconds"] == 86400


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_a_caller_whose_keys_are_refused_is_told_of_none(
    client: Client, settings: DjangoSettings, version: str
) -> None:
    """R03"""
    settings.MCP_IDEM = {"ALLOW_ANONYMOUS": True}

    found = capabilities(client, version, token=None)

    assert "idempotency" not in json.dumps(found)


@pytest.mark.parametrize(
    ("window", "seconds"), [(timedelta(days=3), "259200"), (timedelta(milliseconds=1500), "1.5")], ids=["whole", "half"]
)
def test_the_retention_window_that_is_told_is_the_one_in_force(
    client: Client, settings: DjangoSettings, window: timedelta, seconds: str
) -> None:
    """R13"""
    settings.MCP_IDEM = {"RETENTION": window}
    TokenFactory(text="t")

    said = capabilities(client, wire.MODERN)["extensions"][ABOUT_KEYS]["retentionSeconds"]

    assert json.dumps(said) == seconds


def test_a_tool_tells_what_is_different_about_its_keys(user: User) -> None:
    """R13"""
    tools = {tool.name: tool.meta for tool in mcp_client(user, site=told).list_tools()}

    assert tools == {
        "plain": None,
        "careful": {ABOUT_KEYS: {"key": "required", "retentionSeconds": 604800}},
        "deduplicated": {ABOUT_KEYS: {"deduplicateWithinSeconds": 2.5}},
    }


@pytest.mark.parametrize("version", wire.VERSIONS)
@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_a_replay_is_the_first_answer_byte_for_byte_but_for_its_mark(
    client: Client, user: User, marked: None, value: Any, version: str
) -> None:
    """R06"""
    TokenFactory(user=user, text="t")

    first = post(client, "echo", {"value": value}, version)
    retry = post(client, "echo", {"value": value}, version)

    assert wire.unmarked(retry.content) == first.content
    assert REPLAYED.encode() not in first.content
    assert (HEADER in first.headers, retry.headers.get(HEADER)) == (False, "true")


@pytest.mark.parametrize(
    ("name", "arguments"), [("contents", {}), ("declared_error", {"label": "a"})], ids=["with a _meta", "error"]
)
@pytest.mark.parametrize("version", wire.VERSIONS)
def test_every_kind_of_result_is_marked(
    client: Client, user: User, marked: None, name: str, arguments: dict[str, Any], version: str
) -> None:
    """R06: also one with a _meta of its own."""
    TokenFactory(user=user, text="t")

    first, retry = (post(client, name, arguments, version) for _ in range(2))

    assert wire.unmarked(retry.content) == first.content
    assert retry.headers[HEADER] == "true"


def test_a_question_to_the_caller_is_marked(client: Client, user: User, marked: None) -> None:
    """R06: its state is sealed anew each time."""
    TokenFactory(user=user, text="t")

    first, retry = (post(client, "asks", {}).json()["result"] for _ in range(2))

    assert REPLAYED not in first["_meta"]
    assert REPLAYED in retry["_meta"]
    assert retry["resultType"] == "input_required"


def test_what_is_true_of_one_answer_of_a_batch_is_not_told_of_the_next(
    client: Client, user: User, marked: None
) -> None:
    """R06: only the replay is marked; the header is for a single answer."""
    TokenFactory(user=user, text="t")
    version = "2025-03-26"
    post(client, "atomic", {"label": "a"}, version)
    again = {"name": "atomic", "arguments": {"label": "a"}, "idempotencyKey": "k"}
    batch = b"[%b,%b]" % (wire.message("tools/call", again, 1), wire.message("tools/list", {}, 2))

    response = client.post("/mcp", batch, "application/json", headers=wire.headers("t", "", None, version))

    replay, listed = (answer["result"] for answer in response.json())
    assert REPLAYED in replay["_meta"]
    assert "_meta" not in listed
    assert HEADER not in response.headers


def test_the_mark_says_when_the_first_call_ended(client: Client, user: User, marked: None) -> None:
    """R06"""
    TokenFactory(user=user, text="t")
    for _ in range(2):
        answer = post(client, "atomic", {"label": "a"})

    ended = IdempotencyRecord.objects.aggregate(ended=Max("finished_at"))["ended"]

    text = ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert answer.json()["result"]["_meta"][REPLAYED] == {"completedAt": text}


def test_a_json_rpc_error_is_marked_in_the_header_alone(client: Client, user: User, marked: None) -> None:
    """R06: it has no _meta."""
    TokenFactory(user=user, text="t")

    first, retry = (post(client, "protocol_error", {"label": "a"}) for _ in range(2))

    assert retry.content == first.content
    assert (HEADER in first.headers, retry.headers.get(HEADER)) == (False, "true")


def test_a_refusal_is_no_replay(client: Client, user: User, marked: None) -> None:
    TokenFactory(user=user, text="t")
    post(client, "atomic", {"label": "a"})

    refused = post(client, "atomic", {"label": "b"})

    assert refused.json()["error"]["data"]["type"] == "idempotency_key_conflict"
    assert HEADER not in refused.headers


def test_a_site_can_leave_the_mark_out(client: Client, user: User) -> None:
    """R06: then a replay is the first answer, byte for byte."""
    TokenFactory(user=user, text="t")
    assert default_site.mark_replays is False

    first, retry = (post(client, "atomic", {"label": "a"}) for _ in range(2))

    assert retry.content == first.content
    assert HEADER not in retry.headers


def test_a_replay_is_marked_where_there_is_no_http(user: User, marked: None) -> None:
    """R06: there the result's _meta is all there is."""
    client = mcp_client(user)

    first, retry = (client.call_tool("atomic", {"label": "a"}, key="k") for _ in range(2))

    assert REPLAYED not in (first.meta or {})
    assert REPLAYED in (retry.meta or {})
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_moment_is_told_in_utc_without_use_tz(user: User, settings: DjangoSettings, zone: str) -> None:
    moment = RecordFactory(user=user).finished_at
    settings.TIME_ZONE = zone
    settings.USE_TZ = False

    read = IdempotencyRecord.objects.values_list("finished_at", flat=True)[0]

    assert read is not None
    assert read.tzinfo is None
    assert abs(in_utc(read) - moment) < timedelta(milliseconds=1)


@pytest.mark.parametrize("reason", Reason)
def test_a_refusal_says_when_to_retry_if_a_retry_can_help(reason: Reason) -> None:
    """R05: and only then, so that no client repeats by itself what has to be looked at."""
    error = RefusedError(Refused(reason, "Why."), SentKey(in_body=("k",)))

    assert ("retryAfterMs" in error.error.data) is (reason in {Reason.IN_PROGRESS, Reason.UNAVAILABLE})
    assert ("idempotencyKey" in error.error.data) is (reason is not Reason.INVALID)
