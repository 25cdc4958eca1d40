"""From where the endpoint may be called: a web page that a person happens to read must not reach it."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings as DjangoSettings

from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory

pytestmark = pytest.mark.django_db


def call(client: Client, **headers: Any) -> HttpResponse:
    """Call a tool whose effect tells whether it ran."""
    TokenFactory(text="t")
    sent = {**wire.headers("t", "tools/call", "external"), **headers}
    body = wire.message("tools/call", wire.call_params("external", {"label": "a"}))
    return client.post("/mcp", body, sent.pop("Content-Type"), headers=sent)


@pytest.mark.parametrize(
    "origin",
    [
        "http://testserver",
        " http://testserver ",
        "https://shop.example.com",
        "https://a.trusted.example",
        "https://a.b.trusted.example",
        "https://trusted.example",
    ],
)
def test_its_own_origin_and_those_that_the_project_trusts_may_call(
    client: Client, settings: DjangoSettings, origin: str
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://shop.example.com", "https://*.trusted.example"]
    assert call(client, Origin=origin).status_code == 200
    assert Effect.objects.count() == 1


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "https://testserver",
        "http://testserver:8000",
        "http://shop.example.com",
        "https://shop.example.com.evil.example",
        "http://a.trusted.example",
        "https://untrusted.example",
        "https://[evil",
        "null",
        "",
    ],
)
def test_any_other_origin_is_refused_before_anything_runs(
    client: Client, settings: DjangoSettings, origin: str
) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://shop.example.com", "https://*.trusted.example"]
    assert call(client, Origin=origin).status_code == 403
    assert not Effect.objects.exists()


def test_a_host_that_is_not_the_projects_is_refused(client: Client, settings: DjangoSettings) -> None:
    """As after a DNS rebinding; also without the middleware that looks at it."""
    settings.MIDDLEWARE = []
    assert call(client, Host="evil.example.com").status_code == 400
    assert not Effect.objects.exists()


@pytest.mark.parametrize(("honoured", "status"), [(True, 200), (False, 403)])
def test_behind_a_proxy_the_origin_is_that_of_the_proxy_if_the_project_says_so(
    client: Client, settings: DjangoSettings, honoured: bool, status: int
) -> None:
    settings.USE_X_FORWARDED_HOST = honoured
    settings.ALLOWED_HOSTS = ["testserver", "shop.example.com"]
    headers = {"X-Forwarded-Host": "shop.example.com", "Origin": "http://shop.example.com"}
    assert call(client, **headers).status_code == status
