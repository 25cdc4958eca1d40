"""The endpoint mounted in ``asgi.py``, behind a real server, beside the project."""

from __future__ import annotations

import httpx

from tests import wire
from tests.e2e.servers import shop


def test_the_project_is_served_beside_it_and_its_middleware_is_not_in_the_way() -> None:
    """Its slash too, which no redirect takes away."""
    with shop("uvicorn, mounted") as running:
        page = httpx.get(running.url.replace("/mcp", "/admin/login/"))
        assert page.status_code == 200
        assert page.headers["X-Frame-Options"] == "DENY"

        body, headers = wire.message("tools/list", wire.envelope()), wire.headers("demo-alice", "tools/list")
        for url in (running.url, f"{running.url}/"):
            listed = httpx.post(url, content=body, headers=headers)
            assert "charge_payment" in {tool["name"] for tool in listed.json()["result"]["tools"]}
            assert "X-Frame-Options" not in listed.headers
