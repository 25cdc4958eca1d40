"""What is refused before anything runs: the documented error, never a 500, never a record (R02, R11, R22)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import Permission, User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.models import IdempotencyRecord
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory

pytestmark = pytest.mark.django_db

HANDSHAKE = wire.HANDSHAKE[0]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
TOOL_ERROR = "tool error"

KEY_INVALID = "idempotency_key_invalid"
KEY_REQUIRED = "idempotency_key_required"

ABSENT = object()
"""In place of a value: the header or member is not sent at all."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is different from a valid keyed call of the tool ``external``."""

    http: str = "POST"
    headers: dict[str, Any] = field(default_factory=dict)
    message: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    body: Callable[[bytes], bytes] = bytes


class Row(NamedTuple):
    """A bad request and what it gets; a status of ``None`` means that the era has nothing against it."""

    id: str
    change: Change
    modern: int | None
    handshake: int | None
    code: int | str | None = None
    type: str | None = None


def body(text: bytes) -> Change:
    """Another body altogether."""
    return Change(body=lambda _: text)


def label(text: bytes) -> Change:
    """Another JSON text in the place of the one argument's value."""
    return Change(body=lambda valid: valid.replace(b'"LABEL"', text))


def tool(name: str, **params: Any) -> Change:
    """Another tool, of which the headers know."""
    return Change(params={"name": name, **params}, headers={"Mcp-Name": name})


def key(value: Any) -> Change:
    """Another key."""
    return Change(params={"idempotencyKey": value})


def authorization(value: Any) -> Change:
    """Other credentials."""
    return Change(headers={"Authorization": value})


BODIES = [
    Row("an empty body", body(b""), 400, 400, PARSE_ERROR),
    Row("a body of white space", body(b" \r\n"), 400, 400, PARSE_ERROR),
    Row("a form", body(b"method=tools%2Fcall&id=1"), 400, 400, PARSE_ERROR),
    Row("a truncated body", Change(body=lambda valid: valid[:-1]), 400, 400, PARSE_ERROR),
    Row("a second object behind the first", Change(body=lambda valid: valid + b"{}"), 400, 400, PARSE_ERROR),
    Row("a NUL behind the object", Change(body=lambda valid: valid + b"\x00"), 400, 400, PARSE_ERROR),
    Row("a byte order mark", Change(body=lambda valid: b"\xef\xbb\xbf" + valid), 400, 400, PARSE_ERROR),
    Row("UTF-16", Change(body=lambda valid: valid.decode().encode("utf-16")), 400, 400, PARSE_ERROR),
    Row("a compressed body", Change(body=gzip.compress), 400, 400, PARSE_ERROR),
    Row("NaN", label(b"NaN"), 400, 400, PARSE_ERROR),
    Row("Infinity", label(b"Infinity"), 400, 400, PARSE_ERROR),
    Row("-Infinity", label(b"[-Infinity]"), 400, 400, PARSE_ERROR),
    Row("a number no double can hold", label(b"1e400"), 400, 400, PARSE_ERROR),
    Row("an integer of 5000 digits", label(b"1" * 5000), 400, 400, PARSE_ERROR),
    Row("invalid UTF-8", label(b'"\xff"'), 400, 400, PARSE_ERROR),
    Row("half a surrogate pair", label(rb'"\ud83d"'), 400, 400, PARSE_ERROR),
    Row("half a surrogate pair in bytes", label(b'"\xed\xa0\xbd"'), 400, 400, PARSE_ERROR),
    Row("a raw control character", label(b'"\n"'), 400, 400, PARSE_ERROR),
    Row("single quotes", label(b"'a'"), 400, 400, PARSE_ERROR),
    Row("a trailing comma", label(b'"a",'), 400, 400, PARSE_ERROR),
    Row("a comment", label(b'"a" /* why */'), 400, 400, PARSE_ERROR),
    Row("nesting one deeper than 100", label(b"[" * 98 + b"1" + b"]" * 98), 400, 400, PARSE_ERROR),
    Row("nesting 100000 deep", label(b"[" * 100_000 + b"]" * 100_000), 400, 400, PARSE_ERROR),
    Row("nesting 100000 deep and not closed", label(b'{"a":' * 100_000), 400, 400, PARSE_ERROR),
]

MESSAGES = [
    Row("a batch", Change(body=lambda valid: b"[" + valid + b"]"), 400, 400, INVALID_REQUEST),
    Row("an empty batch", body(b"[]"), 400, 400, INVALID_REQUEST),
    Row("a null", body(b"null"), 400, 400, INVALID_REQUEST),
    Row("a number", body(b"1"), 400, 400, INVALID_REQUEST),
    Row("a text", body(b'"tools/call"'), 400, 400, INVALID_REQUEST),
    Row("an empty object", body(b"{}"), 400, 400, INVALID_REQUEST),
    Row("a response", body(b'{"jsonrpc":"2.0","id":1,"result":{}}'), 400, None, INVALID_REQUEST),
    Row("id: null", Change(message={"id": None}), 400, 400, INVALID_REQUEST),
    Row("id: 1.5", Change(message={"id": 1.5}), 400, 400, INVALID_REQUEST),
    Row("id: 1.0", Change(message={"id": 1.0}), 400, 400, INVALID_REQUEST),
    Row("id: true", Change(message={"id": True}), 400, 400, INVALID_REQUEST),
    Row("id: []", Change(message={"id": []}), 400, 400, INVALID_REQUEST),
    Row("id: {}", Change(message={"id": {}}), 400, 400, INVALID_REQUEST),
    Row("no id, a notification", Change(message={"id": ABSENT}), 202, 202),
    Row("no method", Change(message={"method": ABSENT}), 400, 400, INVALID_REQUEST),
    Row("method: null", Change(message={"method": None}), 400, 400, INVALID_REQUEST),
    Row("method: 1", Change(message={"method": 1}), 400, 400, INVALID_REQUEST),
    Row("no jsonrpc", Change(message={"jsonrpc": ABSENT}), 400, 400, INVALID_REQUEST),
    Row("jsonrpc: 1.0", Change(message={"jsonrpc": "1.0"}), 400, 400, INVALID_REQUEST),
    Row("jsonrpc: a number", Change(message={"jsonrpc": 2.0}), 400, 400, INVALID_REQUEST),
    Row("params: []", Change(message={"params": []}), 400, 400, INVALID_REQUEST),
    Row("params: a text", Change(message={"params": "external"}), 400, 400, INVALID_REQUEST),
    Row("params: null", Change(message={"params": None}), 400, 200, INVALID_PARAMS),
    Row("no params", Change(message={"params": ABSENT}), 400, 200, INVALID_PARAMS),
    Row(
        "an unknown method",
        Change(message={"method": "tools/run"}, headers={"Mcp-Method": "tools/run"}),
        404,
        200,
        METHOD_NOT_FOUND,
    ),
]

PARAMS = [
    Row("no name", Change(params={"name": ABSENT}), 400, 200, INVALID_PARAMS),
    Row("name: null", Change(params={"name": None}), 400, 200, INVALID_PARAMS),
    Row("name: 1", Change(params={"name": 1}), None, 200, INVALID_PARAMS),
    Row("name: 1, as in its header", Change(params={"name": 1}, headers={"Mcp-Name": "1"}), 400, None, HEADER_MISMATCH),
    Row("name: []", Change(params={"name": ["external"]}), None, 200, INVALID_PARAMS),
    Row("arguments: null", Change(params={"arguments": None}), 400, 200, INVALID_PARAMS),
    Row("arguments: []", Change(params={"arguments": []}), 400, 200, INVALID_PARAMS),
    Row("arguments: a text", Change(params={"arguments": '{"label":"a"}'}), 400, 200, INVALID_PARAMS),
    Row("arguments: false", Change(params={"arguments": False}), 400, 200, INVALID_PARAMS),
    Row("inputResponses: []", Change(params={"inputResponses": []}), 400, 200, INVALID_PARAMS),
    Row("requestState: 1", Change(params={"requestState": 1}), 400, 200, INVALID_PARAMS),
    Row("progressToken: []", Change(meta={"progressToken": []}), 400, 200, INVALID_PARAMS),
    Row("an unknown tool", tool("no_such_tool"), 400, 200, INVALID_PARAMS),
    Row("a tool in another case", tool("External"), 400, 200, INVALID_PARAMS),
    Row("a tool without a name", tool(""), 400, 200, INVALID_PARAMS),
    Row("a tool that the caller may not call", tool("guarded"), 400, 200, INVALID_PARAMS),
    Row("no arguments where one is needed", Change(params={"arguments": ABSENT}), 200, 200, TOOL_ERROR),
    Row("a missing argument", Change(params={"arguments": {}}), 200, 200, TOOL_ERROR),
    Row("an unknown argument", Change(params={"arguments": {"label": "a", "amount": 1}}), 200, 200, TOOL_ERROR),
    Row("an argument in another case", Change(params={"arguments": {"Label": "a"}}), 200, 200, TOOL_ERROR),
    Row("a number for a text", label(b"1"), 200, 200, TOOL_ERROR),
    Row("a boolean for a text", label(b"true"), 200, 200, TOOL_ERROR),
    Row("a null for a text", label(b"null"), 200, 200, TOOL_ERROR),
    Row("an array for a text", label(b'["a"]'), 200, 200, TOOL_ERROR),
    Row("an integer above 64 bits for a text", label(b"1" * 100), 200, 200, TOOL_ERROR),
    Row("nesting of exactly 100 for a text", label(b"[" * 97 + b"1" + b"]" * 97), 200, 200, TOOL_ERROR),
]

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"

ENVELOPES = [
    Row("no _meta", Change(params={"_meta": ABSENT}), 400, None, INVALID_PARAMS),
    Row("_meta: null", Change(params={"_meta": None}), 400, None, INVALID_PARAMS),
    Row("_meta: []", Change(params={"_meta": []}), 400, 200, INVALID_PARAMS),
    Row("_meta: {}", Change(params={"_meta": {}}), 400, None, INVALID_PARAMS),
    Row("no version", Change(meta={VERSION: ABSENT}), 400, None, INVALID_PARAMS),
    Row("no capabilities", Change(meta={CAPABILITIES: ABSENT}), 400, None, INVALID_PARAMS),
    Row("capabilities: null", Change(meta={CAPABILITIES: None}), 400, None, INVALID_PARAMS),
    Row("capabilities: []", Change(meta={CAPABILITIES: []}), 400, None, INVALID_PARAMS),
    Row("client: a text", Change(meta={CLIENT: "tests 1"}), 400, None, INVALID_PARAMS),
    Row("version: a number", Change(meta={VERSION: 2026}), 400, None, HEADER_MISMATCH),
    Row("version: another than in the header", Change(meta={VERSION: HANDSHAKE}), 400, None, HEADER_MISMATCH),
    Row(
        "version: one that nobody serves",
        Change(meta={VERSION: "2099-01-01"}, headers={"MCP-Protocol-Version": "2099-01-01"}),
        400,
        None,
        UNSUPPORTED_VERSION,
    ),
]

HEADERS = [
    Row("another version", Change(headers={"MCP-Protocol-Version": "2099-01-01"}), 400, None, HEADER_MISMATCH),
    Row("an unknown version", Change(headers={"MCP-Protocol-Version": "2099-01-01"}), None, 400, INVALID_PARAMS),
    Row("no version at all", Change(headers={"MCP-Protocol-Version": "latest"}), None, 400, INVALID_PARAMS),
    Row("no method", Change(headers={"Mcp-Method": ABSENT}), 400, None, HEADER_MISMATCH),
    Row("another method", Change(headers={"Mcp-Method": "tools/list"}), 400, None, HEADER_MISMATCH),
    Row("the method in another case", Change(headers={"Mcp-Method": "Tools/Call"}), 400, None, HEADER_MISMATCH),
    Row("no name", Change(headers={"Mcp-Name": ABSENT}), 400, None, HEADER_MISMATCH),
    Row("another name", Change(headers={"Mcp-Name": "echo"}), 400, None, HEADER_MISMATCH),
    Row("a broken name", Change(headers={"Mcp-Name": "=?base64?!?="}), 400, None, HEADER_MISMATCH),
    Row("no content type", Change(headers={"Content-Type": ABSENT}), 415, 415),
    Row("text", Change(headers={"Content-Type": "text/plain"}), 415, 415),
    Row("a form", Change(headers={"Content-Type": "application/x-www-form-urlencoded"}), 415, 415),
    Row("a multipart form", Change(headers={"Content-Type": "multipart/form-data; boundary=x"}), 415, 415),
    Row("a broken multipart form", Change(headers={"Content-Type": "multipart/form-data"}), 415, 415),
    Row("another kind of JSON", Change(headers={"Content-Type": "application/json-rpc"}), 415, 415),
    Row("accepts HTML", Change(headers={"Accept": "text/html"}), 406, 406),
    Row("accepts anything but JSON", Change(headers={"Accept": "application/json;q=0"}), 406, 406),
    Row("accepts nonsense", Change(headers={"Accept": "///"}), 406, 406),
]

CREDENTIALS = [
    Row("none", authorization(ABSENT), 401, 401),
    Row("empty", authorization(""), 401, 401),
    Row("another scheme", authorization("Basic dmFsaWQ6"), 401, 401),
    Row("no scheme", authorization("valid"), 401, 401),
    Row("no token", authorization("Bearer "), 401, 401),
    Row("unknown", authorization("Bearer unknown"), 401, 401),
    Row("in another case", authorization("Bearer VALID"), 401, 401),
    Row("more than a token", authorization("Bearer valid valid"), 401, 401),
    Row("not ASCII", authorization("Bearer é"), 401, 401),
    Row("expired", authorization("Bearer expired"), 401, 401),
    Row("revoked", authorization("Bearer revoked"), 401, 401),
    Row("of an inactive user", authorization("Bearer inactive"), 401, 401),
]

HTTP_METHODS = [
    Row(http, Change(http=http), 405, 405) for http in ("GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE")
]

KEYS = [
    Row("null", key(None), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("0", key(0), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("1", key(1), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("1.5", key(1.5), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("true", key(True), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("false", key(False), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("[]", key([]), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("an array of a key", key(["k"]), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("{}", key({}), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("empty", key(""), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("256 characters", key("k" * 256), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("256 emoji", key("\U0001f600" * 256), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("half a surrogate pair", key("\ud83d"), 400, 400, PARSE_ERROR),
    Row(
        "no key where one is required", tool("needs_key", idempotencyKey=ABSENT), 200, 200, INVALID_PARAMS, KEY_REQUIRED
    ),
    Row("null where one is required", tool("needs_key", idempotencyKey=None), 200, 200, INVALID_PARAMS, KEY_INVALID),
    Row("on an unknown tool", tool("no_such_tool", idempotencyKey=1), 400, 200, INVALID_PARAMS),
    Row("on a tool that the caller may not call", tool("guarded", idempotencyKey=1), 400, 200, INVALID_PARAMS),
    Row(
        "among the arguments",
        Change(params={"arguments": {"label": "a", "idempotencyKey": "k"}, "idempotencyKey": ABSENT}),
        200,
        200,
        TOOL_ERROR,
    ),
]

TABLES = {
    "body": BODIES,
    "message": MESSAGES,
    "params": PARAMS,
    "envelope": ENVELOPES,
    "header": HEADERS,
    "credentials": CREDENTIALS,
    "HTTP": HTTP_METHODS,
    "key": KEYS,
}


def each(*tables: str) -> pytest.MarkDecorator:
    """Runs a test with every row of some tables, in both eras."""
    return pytest.mark.parametrize(
        ("version", "row", "status"),
        [
            pytest.param(version, row, status, id=f"{table}: {row.id}, {version}")
            for table in tables
            for row in TABLES[table]
            for version, status in ((wire.MODERN, row.modern), (HANDSHAKE, row.handshake))
            if status is not None
        ],
    )


@pytest.fixture
def caller() -> User:
    """A user with one valid token, called ``valid``, and others that are not."""
    user: User = UserFactory()
    TokenFactory(user=user, text="valid")
    TokenFactory(user=user, text="expired", expires_at=timezone.now() - timedelta(seconds=1))
    TokenFactory(user=user, text="revoked", revoked_at=timezone.now())
    TokenFactory(user__is_active=False, text="inactive")
    return user


def send(client: Client, version: str, change: Change) -> HttpResponse:
    """Send a valid keyed call of the tool ``external``, but for ``change``."""
    params = wire.call_params("external", {"label": "LABEL"}, version, idempotencyKey="k")
    if "_meta" in params or change.meta:
        params["_meta"] = changed(params.get("_meta", {}), change.meta)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": changed(params, change.params)}
    valid = json.dumps(changed(message, change.message)).encode()
    headers = changed(wire.headers("valid", "tools/call", "external", version), change.headers)
    response: HttpResponse = client.generic(
        change.http, "/mcp", change.body(valid), content_type=headers.get("Content-Type", ""), headers=headers
    )
    return response


def changed(members: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``members`` with ``changes`` made."""
    return {name: value for name, value in {**members, **changes}.items() if value is not ABSENT}


def told(response: HttpResponse) -> tuple[int, int | str | None, str | None]:
    """What a response says: its status, its error's code, and the type in its error's data."""
    if not response.content:
        return response.status_code, None, None
    answer = json.loads(response.content)
    if "result" in answer:
        return response.status_code, TOOL_ERROR if answer["result"].get("isError") else "success", None
    data = answer["error"].get("data")
    return response.status_code, answer["error"]["code"], data.get("type") if isinstance(data, dict) else None


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
def test_the_request_that_the_table_changes_is_good(client: Client, version: str) -> None:
    """R22: so that each row is refused for its change and for nothing else."""
    assert told(send(client, version, Change())) == (200, "success", None)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


@pytest.mark.usefixtures("caller")
@each(*TABLES)
def test_r22_bad_input_gets_its_error_runs_nothing_and_leaves_no_record(
    client: Client, version: str, row: Row, status: int
) -> None:
    """R22; R02 for the keys, R11 for the bodies."""
    response = send(client, version, row.change)

    assert told(response) == (status, row.code, row.type)
    assert not IdempotencyRecord.objects.exists()
    assert not Effect.objects.exists()


@pytest.mark.usefixtures("caller")
@each("params", "credentials", "key")
def test_r22_once_the_cause_is_gone_the_same_key_runs(client: Client, version: str, row: Row, status: int) -> None:
    """R22."""
    send(client, version, row.change)

    response = send(client, version, Change())

    assert told(response) == (200, "success", None)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
def test_r22_a_body_larger_than_the_project_allows_is_refused(
    client: Client, settings: DjangoSettings, version: str
) -> None:
    """R22."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    refused = send(client, version, label(b'"' + b"a" * 1000 + b'"'))
    assert told(refused) == (413, None, None)
    assert not IdempotencyRecord.objects.exists()

    assert told(send(client, version, Change())) == (200, "success", None)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
def test_r22_a_message_of_more_values_than_the_project_allows_is_refused(
    client: Client, settings: DjangoSettings, version: str
) -> None:
    """R22."""
    settings.MCP_IDEM = {"MESSAGE_MAX_VALUES": 100}

    refused = send(client, version, label(b"[" + b"0," * 100 + b"0]"))
    assert told(refused) == (400, PARSE_ERROR, None)
    assert "more than 100 values" in refused.json()["error"]["message"]
    assert not IdempotencyRecord.objects.exists()

    assert told(send(client, version, label(b'"' + b"[," * 100 + b'"'))) == (200, "success", None)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


@pytest.mark.usefixtures("caller")
def test_a_large_body_of_somebody_unknown_is_not_even_measured(client: Client, settings: DjangoSettings) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10

    assert told(send(client, wire.MODERN, authorization("Bearer unknown"))) == (401, None, None)


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize(
    ("credentials", "challenge"),
    [
        pytest.param(ABSENT, 'Bearer realm="mcp"', id="none"),
        pytest.param("Basic dmFsaWQ6", 'Bearer realm="mcp"', id="another scheme"),
        pytest.param("Bearer unknown", 'error="invalid_token"', id="unknown"),
        pytest.param("Bearer expired", 'error="invalid_token"', id="expired"),
        pytest.param("Bearer revoked", 'error="invalid_token"', id="revoked"),
        pytest.param("Bearer inactive", 'error="invalid_token"', id="of an inactive user"),
    ],
)
def test_who_is_not_let_in_is_told_how_to_sign_in(client: Client, credentials: Any, challenge: str) -> None:
    response = send(client, wire.MODERN, authorization(credentials))

    assert response.status_code == 401
    assert response["WWW-Authenticate"].startswith("Bearer ")
    assert challenge in response["WWW-Authenticate"]
    assert ("error=" in response["WWW-Authenticate"]) is ("error=" in challenge)


@pytest.mark.usefixtures("caller")
def test_credentials_that_are_not_accepted_cannot_be_told_apart(client: Client) -> None:
    """R18: whether a token once was valid is nobody's business."""
    responses = [
        send(client, wire.MODERN, authorization(f"Bearer {token}"))
        for token in ("unknown", "expired", "revoked", "inactive")
    ]

    assert len({response["WWW-Authenticate"] for response in responses}) == 1


@pytest.mark.parametrize("http", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"])
def test_other_http_methods_are_told_which_one_is_allowed(client: Client, http: str) -> None:
    response = client.generic(http, "/mcp")

    assert response.status_code == 405
    assert response["Allow"] == "POST"


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
@pytest.mark.parametrize("bad", [pytest.param({"id": None}, id="id"), pytest.param({"jsonrpc": "1.0"}, id="jsonrpc")])
def test_r11_an_error_of_a_message_that_cannot_be_read_has_no_id(
    client: Client, version: str, bad: dict[str, Any]
) -> None:
    """R11: as JSON-RPC has it."""
    response = send(client, version, Change(message=bad))

    assert json.loads(response.content)["id"] is None
    assert response["Content-Type"] == "application/json"


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("request_id", [0, -1, 2**70, "", "é", "1"], ids=repr)
def test_r06_an_error_repeats_the_id_of_its_request(client: Client, request_id: int | str) -> None:
    """R06: exactly as it was sent."""
    response = send(client, wire.MODERN, Change(message={"id": request_id}, params={"idempotencyKey": None}))

    assert repr(json.loads(response.content)["id"]) == repr(request_id)


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("value", [pytest.param("k", id="a valid key"), pytest.param(1, id="an invalid key")])
@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
def test_r19_a_tool_that_the_caller_may_not_call_answers_exactly_as_an_unknown_one(
    client: Client, version: str, value: Any
) -> None:
    """R19: key or no key."""
    unknown = send(client, version, tool("unknown", idempotencyKey=value))
    guarded = send(client, version, tool("guarded", idempotencyKey=value))

    assert guarded.status_code == unknown.status_code
    assert guarded.content == unknown.content.replace(b"unknown", b"guarded")
    assert guarded.headers.keys() == unknown.headers.keys()


@pytest.mark.parametrize("version", [wire.MODERN, HANDSHAKE])
def test_r22_a_key_refused_for_a_missing_permission_runs_once_it_is_granted(
    client: Client, caller: User, version: str
) -> None:
    """R22."""
    send(client, version, tool("guarded"))
    caller.user_permissions.add(Permission.objects.get(codename="view_effect"))

    response = send(client, version, tool("guarded"))

    assert told(response) == (200, "success", None)
    assert IdempotencyRecord.objects.count() == Effect.objects.count() == 1


@pytest.mark.usefixtures("caller")
def test_r02_a_refusal_does_not_repeat_a_key_that_cannot_be_one(client: Client) -> None:
    """R02."""
    response = send(client, wire.MODERN, key("secret" * 50))

    assert json.loads(response.content)["error"]["data"] == {"type": KEY_INVALID}
    assert b"secret" not in response.content
