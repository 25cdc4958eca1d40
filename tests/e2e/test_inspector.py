"""The command line of the MCP Inspector, in each era.

It says that it supports no elicitation, and has no option for it, so a tool that asks is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tests.e2e.node import inspect
from tests.e2e.servers import Shop, shop

pytestmark = [
    # It is the same on every database.
    pytest.mark.vendor("sqlite"),
    pytest.mark.parametrize("era", ["legacy", "auto", "modern"]),
]


@pytest.fixture(scope="module")
def running() -> Iterator[Shop]:
    with shop("uvicorn", project="tests.e2e.clients") as started:
        yield started


def test_it_lists_tools_whose_schemas_other_clients_understand(running: Shop, era: str, tmp_path: Path) -> None:
    listed = inspect(running.url, "--method", "tools/list", "--strict", era=era, home=tmp_path)

    names = {tool["name"] for tool in listed["result"]["tools"]}
    assert "charge_payment" in names
    assert "staff_report" not in names


def test_it_calls_a_tool_once_with_a_key_in_meta(running: Shop, era: str, tmp_path: Path) -> None:
    """R06, R07"""
    before = running.effects()["payments"]

    def charge(amount: int) -> Any:
        arguments = json.dumps({"amount": amount, "currency": "EUR"})
        call = ["--method", "tools/call", "--tool-name", "charge_payment", "--tool-args-json", arguments]
        key = ["--tool-metadata", f"django-mcp-idem/idempotencyKey=inspector-{era}"]
        return inspect(running.url, *call, *key, era=era, home=tmp_path)

    first, retry, other = charge(5)["result"], charge(5)["result"], charge(6)["error"]

    assert first["structuredContent"]["amount"] == 5
    mark = {"django-mcp-idem/replayed": {"completedAt": ANY}}
    assert retry == {**first, "_meta": {**first.get("_meta", {}), **mark}}
    assert "used for another call" in other["message"]
    assert running.effects()["payments"] == before + 1


def test_it_is_told_that_a_tool_asks(running: Shop, era: str, tmp_path: Path) -> None:
    refused = inspect(running.url, "--method", "tools/call", "--tool-name", "greet", era=era, home=tmp_path)
    assert refused["error"]["message"] == "This takes a client that supports elicitation."


def test_it_is_told_that_its_token_is_not_accepted(running: Shop, era: str, tmp_path: Path) -> None:
    refused = inspect(running.url, "--method", "tools/list", era=era, home=tmp_path, token="unknown")
    assert refused["error"]["code"] == "auth_required"
