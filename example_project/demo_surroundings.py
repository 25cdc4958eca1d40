"""What surrounds the demo's steps: the server, a proxy that cuts connections, and the admin's pages."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path

import httpx2

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"

CUT_AFTER = 0.5
"""How many seconds the proxy lets a request run before it cuts the connection."""

PATIENCE = 15.0
"""How many seconds anything may take before the demo gives it up."""


@asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[int]:
    """A proxy that passes a request on and cuts both connections before the answer. Gives the port it listens on."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, upstream = await asyncio.open_connection(HOST, port)
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT_AFTER):
                while chunk := await reader.read(65536):
                    upstream.write(chunk)
        upstream.transport.abort()
        writer.transport.abort()

    async with await asyncio.start_server(cut, HOST, 0) as server:
        yield server.sockets[0].getsockname()[1]


@contextmanager
def example_server(directory: Path) -> Iterator[int]:
    """The example, served by a process of its own on a database of its own. Gives the port it listens on."""
    chosen = {"DATABASE_URL": f"sqlite:///{directory / 'demo.sqlite3'}", "REDIS_URL": "", "MCP_LEASE_SECONDS": ""}
    environment = {**os.environ, **chosen, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    for command in ("migrate", "demo_data"):
        manage = [sys.executable, "manage.py", command]
        subprocess.run(manage, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    port = _free_port()
    serve = [sys.executable, "-m", "uvicorn", "--host", HOST, "--port", str(port), "--lifespan", "off"]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*serve, "example_project.asgi:application"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        try:
            _wait_for(process, port)
            yield port
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port)):
            return
        time.sleep(0.05)
    raise RuntimeError("The example's server did not start.")


class _ResultList(HTMLParser):
    """The rows of an admin change list: the text of each cell by its column."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self._column: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag == "tr":
            self.rows.append({})
        if tag in ("td", "th"):
            fields = [name.removeprefix("field-") for name in classes if name.startswith("field-")]
            self._column = fields[0] if fields else None

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._column = None

    def handle_data(self, data: str) -> None:
        if self._column is not None and data.strip():
            self.rows[-1][self._column] = data.strip()


async def records_in_the_admin(port: int, key: str) -> list[dict[str, str]]:
    """Sign in as a person would, search for a key, and read the table."""
    async with httpx2.AsyncClient(base_url=f"http://{HOST}:{port}", follow_redirects=True) as browser:
        await browser.get("/admin/login/")
        form = {"username": "admin", "password": "admin", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        (await browser.post("/admin/login/?next=/admin/", data=form)).raise_for_status()
        page = await browser.get("/admin/django_mcp_idem/idempotencyrecord/", params={"q": key})
        page.raise_for_status()
    table = _ResultList()
    table.feed(page.text)
    return [row for row in table.rows if row]
