"""A result that asks the client for more, and the call that brings the answers (R16)."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from mcp.shared.exceptions import MCPError
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import continuations
from django_mcp_idem.protocol import get_server
from django_mcp_idem.testing import mcp_client
from tests import wire
from tests.app.models import Effect
from tests.factories import TokenFactory, UserFactory

pytestmark = pytest.mark.django_db

ANSWERS = {"name": {"action": "accept", "content": {"name": "Alice"}}}
INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021


@pytest.fixture
def new_keys() -> Any:
    """Lets the next process begin, which reads the keys anew; and the one after the test."""
    yield get_server.cache_clear
    get_server.cache_clear()


def ask(user: User, label: str = "a", **members: Any) -> dict[str, Any]:
    """Call the tool that asks for a name; with ``members`` to continue."""
    return mcp_client(user, capabilities={"elicitation": {}}).request(
        "tools/call", {"name": "asks_for_name", "arguments": {"label": label}, **members}
    )


def test_a_body_that_asks_is_run_again_with_the_answers_and_its_state(user: User) -> None:
    first = ask(user)
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["name"]["method"] == "elicitation/create"

    answered = ask(user, inputResponses=ANSWERS, requestState=first["requestState"])

    assert answered["structuredContent"] == "Alice for a"
    assert Effect.objects.count() == 1


def test_its_state_cannot_be_read(user: User) -> None:
    assert "label" not in ask(user)["requestState"]


def refused_state(user: User, **members: Any) -> bool:
    """Whether a continuation is refused for its state, before anything runs."""
    with pytest.raises(MCPError) as refused:
        ask(user, inputResponses=ANSWERS, **members)
    assert not Effect.objects.exists()
    return bool(refused.value.code == INVALID_PARAMS and refused.value.data == {"reason": "invalid_request_state"})


def test_a_state_that_was_changed_or_made_up_is_refused(user: User) -> None:
    state = ask(user)["requestState"]
    assert refused_state(user, requestState=f"{state}-TAMPERED")
    assert refused_state(user, requestState=state[:-2])
    assert refused_state(user, requestState='{"label": "a"}')


def test_a_state_is_good_for_its_caller_and_its_call_alone(user: User) -> None:
    """R18: another user's state continues nothing."""
    state = ask(user)["requestState"]
    assert refused_state(UserFactory(), requestState=state)
    assert refused_state(user, label="b", requestState=state)


def test_a_state_is_good_for_a_time(user: User, monkeypatch: pytest.MonkeyPatch, new_keys: Any) -> None:
    monkeypatch.setattr(continuations, "STATE_SECONDS", 1e-9)
    new_keys()
    assert refused_state(user, requestState=ask(user)["requestState"])


def test_any_process_with_the_projects_keys_continues(user: User, settings: DjangoSettings, new_keys: Any) -> None:
    """Also after the secret key was rotated, and not after it was forgotten."""
    state = ask(user)["requestState"]
    old = settings.SECRET_KEY

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "forgotten the old one", []
    new_keys()
    assert refused_state(user, requestState=state)

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "rotated", [old, "rotated"]
    new_keys()
    answered = ask(user, inputResponses=ANSWERS, requestState=state)
    assert answered["structuredContent"] == "Alice for a"


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}, "roots": {}}])
def test_a_client_is_asked_for_nothing_that_it_does_not_support(client: Client, capabilities: dict[str, Any]) -> None:
    TokenFactory(text="t")
    params = wire.call_params("asks_for_name", {"label": "a"})
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities
    headers = wire.headers("t", "tools/call", "asks_for_name")

    response = client.post("/mcp", wire.message("tools/call", params), headers.pop("Content-Type"), headers=headers)

    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["data"]) == (MISSING_CAPABILITY, {"requiredCapabilities": {"elicitation": {}}})
