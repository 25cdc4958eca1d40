"""The endpoint mounted in an ASGI application: the view's answers, in Django's handling, without the middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import got_request_exception, request_finished, request_started
from django.db import connections
from django.db.backends.signals import connection_created
from django.dispatch import Signal
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import site
from django_mcp_idem.asgi import mount
from django_mcp_idem.transport import http
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory

pytestmark = pytest.mark.django_db(transaction=True)

ELSEWHERE = 418


@pytest.fixture(autouse=True)
def settings(settings: DjangoSettings, user: User) -> DjangoSettings:
    """A project whose middleware cannot be loaded, and a user with a token."""
    settings.MIDDLEWARE = ["no.such.middleware"]
    TokenFactory(user=user, text="t")
    return settings


@dataclass(frozen=True)
class Response:
    """What was sent in answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes


async def elsewhere(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The application that serves all else."""
    await send({"type": "http.response.start", "status": ELSEWHERE, "headers": []})
    await send({"type": "http.response.body", "body": scope["type"].encode()})


def call(path: str = "/mcp", *, at: str = "/mcp", body: bytes | None = None, **scope: Any) -> Response:
    """Call the tool ``external`` at a path of what ``mount`` returns, with other members in the scope."""
    sent = wire.message("tools/call", wire.call_params("external", {"label": "a"})) if body is None else body
    headers = {**wire.headers("t", "tools/call", "external"), "Host": "testserver", **scope.pop("headers", {})}
    return asyncio.run(_send(path, at, sent, headers, scope))


async def _send(path: str, at: str, body: bytes, headers: dict[str, str], scope: dict[str, Any]) -> Response:
    request = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        **scope,
    }
    exchange = ApplicationCommunicator(mount(elsewhere, at, site), request)
    await exchange.send_input({"type": "http.request", "body": body})
    start = await exchange.receive_output(timeout=20)
    end = await exchange.receive_output(timeout=20)
    await exchange.wait(timeout=20)
    answered = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Response(start["status"], answered, end["body"])


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize("at", ["/mcp", "/mcp/"])
def test_it_answers_with_and_without_a_slash_and_loads_no_middleware(at: str, path: str) -> None:
    answer = call(path, at=at)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body)["result"]["isError"] is False
    assert Effect.objects.count() == 1


@pytest.mark.parametrize("path", ["/", "", "/mcp/x", "/mcp//", "/mcpx", "/x/mcp", "/MCP", "mcp"])
def test_every_other_path_is_served_elsewhere(path: str) -> None:
    assert call(path).status == ELSEWHERE
    assert not Effect.objects.exists()


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_whatever_is_not_http_is_served_elsewhere(kind: str) -> None:
    answer = call(type=kind)
    assert (answer.status, answer.body) == (ELSEWHERE, kind.encode())


@pytest.mark.parametrize("path", ["/shop/mcp", "/shop/mcp/", "/mcp", "/mcp/"])
@pytest.mark.parametrize("prefix", ["/shop", "/shop/"])
def test_its_path_is_below_the_one_that_the_project_is_served_at(prefix: str, path: str) -> None:
    """Whether or not the server has taken that off."""
    assert call(path, root_path=prefix).status == 200


def test_its_path_is_below_the_one_that_the_settings_name(settings: DjangoSettings) -> None:
    settings.FORCE_SCRIPT_NAME = "/shop"
    assert call("/shop/mcp").status == 200
    assert call("/mcp", root_path="/other").status == 200
    assert call("/other/mcp", root_path="/other").status == ELSEWHERE


def test_a_path_without_a_slash_before_it_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="'mcp'; it must begin with a slash"):
        mount(elsewhere, "mcp", site)


@pytest.fixture
def heard() -> Callable[[Signal], list[dict[str, Any]]]:
    """Begins to note what a signal is sent with."""
    receivers = []

    def hear(signal: Signal) -> list[dict[str, Any]]:
        noted: list[dict[str, Any]] = []

        def receive(**details: Any) -> None:
            noted.append(details)

        receivers.append(receive)
        signal.connect(receive)
        return noted

    return hear


def test_a_request_is_told_of_once_and_leaves_no_connection(heard: Callable[[Signal], list[dict[str, Any]]]) -> None:
    started, finished, opened = heard(request_started), heard(request_finished), heard(connection_created)
    assert call().status == 200
    assert len(started) == len(finished) == 1
    assert opened
    assert [details["connection"].connection for details in opened] == [None] * len(opened)


def test_connections_that_may_be_kept_are_not_left_to_a_thread_that_ends(
    monkeypatch: pytest.MonkeyPatch, heard: Callable[[Signal], list[dict[str, Any]]]
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    opened = heard(connection_created)
    assert call().status == 200
    assert opened
    assert [details["connection"].connection for details in opened] == [None] * len(opened)


def test_a_host_that_is_not_the_projects_is_refused() -> None:
    assert call(headers={"Host": "evil.example.com"}).status == 400
    assert not Effect.objects.exists()


@pytest.mark.parametrize(
    ("origin", "status"), [("http://testserver", 200), ("http://evil.example.com", 403), ("https://testserver", 403)]
)
def test_a_web_page_of_another_origin_is_refused(origin: str, status: int) -> None:
    assert call(headers={"Origin": origin}).status == status
    assert Effect.objects.count() == (status == 200)


def test_a_proxy_is_believed_where_the_project_says_so(settings: DjangoSettings) -> None:
    settings.USE_X_FORWARDED_HOST = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.ALLOWED_HOSTS = ["shop.example.com"]
    proxied = {"X-Forwarded-Host": "shop.example.com", "X-Forwarded-Proto": "https"}
    assert call(headers={**proxied, "Origin": "https://shop.example.com"}).status == 200
    assert call(headers={**proxied, "Origin": "http://testserver"}).status == 403


def test_a_body_that_is_too_large_is_refused(settings: DjangoSettings) -> None:
    """Whatever length it says, or none."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert call(body=b" " * 1001).status == 413
    assert call(body=b" " * 1001, headers={"Content-Length": "1"}).status == 413
    assert call(body=b" ", headers={"Content-Length": "1001"}).status == 413


def test_an_error_of_the_endpoint_is_answered_and_logged(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    heard: Callable[[Signal], list[dict[str, Any]]],
) -> None:
    def fail(request: Any) -> None:
        raise RuntimeError("password is hunter2")

    monkeypatch.setattr(http, "authenticate", fail)
    failed = heard(got_request_exception)
    answer = call()
    assert answer.status == 500
    assert b"hunter2" not in answer.body
    assert len(failed) == 1
    (record,) = [record for record in caplog.records if record.name == "django.request"]
    assert record.getMessage() == "Internal Server Error: /mcp"


def test_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert call(headers={"Authorization": "Bearer unknown"}).status == 401
    (record,) = [record for record in caplog.records if record.name == "django.request"]
    assert record.getMessage() == "Unauthorized: /mcp"
