"""The example shop behind real servers, and a client that sees every byte."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests import wire
from tests.services import database_at, database_url, directory, execute_on_server, free_port

ROOT = Path(__file__).resolve().parents[2]

UVICORN = ["uvicorn", "--host=127.0.0.1", "--port={port}", "--lifespan=off"]
COMMANDS: Mapping[str, list[str]] = {
    "uvicorn": [*UVICORN, "{project}.asgi:application"],
    "uvicorn, mounted": [*UVICORN, "tests.e2e.mounted:application"],
    "gunicorn sync": ["gunicorn", "--bind=127.0.0.1:{port}", "--workers=2", "{project}.wsgi:application"],
    "gunicorn threads": ["gunicorn", "--bind=127.0.0.1:{port}", "--threads=4", "{project}.wsgi:application"],
}

FOUR_WORKERS = "gunicorn with four workers of uvicorn"

# Much is tested behind each of the COMMANDS, and this one takes long to start.
_ALL_COMMANDS: Mapping[str, list[str]] = {
    **COMMANDS,
    FOUR_WORKERS: [
        *("gunicorn", "--bind=127.0.0.1:{port}", "--workers=4", "--worker-class=uvicorn_worker.UvicornWorker"),
        "{project}.asgi:application",
    ],
}


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A running example shop."""

    url: str
    environment: Mapping[str, str]
    server: subprocess.Popen[bytes]

    def post(self, body: bytes, headers: Mapping[str, str], timeout: float = 20) -> httpx.Response:
        """Send a request as it is."""
        return httpx.post(self.url, content=body, headers=dict(headers), timeout=timeout)

    def call(self, name: str, arguments: Any, *, key: str | None = None, token: str = "demo-alice") -> dict[str, Any]:
        """Call a tool and return the JSON-RPC message that answers."""
        response = self.post(*request(name, arguments, key=key, token=token))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def effects(self) -> dict[str, int]:
        """How many payments and notifications there really are."""
        counted: dict[str, int] = self.call("count_effects", {})["result"]["structuredContent"]
        return counted

    def wait_for_claim(self) -> None:
        """Wait until a call that was sent has claimed its key, be it in a transaction that nobody sees into."""
        joined = _JOINED_CLAIMS.get(database_at(self.environment["DATABASE_URL"]).vendor)
        claims = _COMMITTED_CLAIMS if joined is None else f"{_COMMITTED_CLAIMS} UNION ALL {joined}"
        while not self.rows(claims):
            # MariaDB looks at its transactions anew only if it was not asked for a tenth of a second.
            time.sleep(0.15)

    def states(self) -> list[str]:
        """The states of all records, read from the database itself."""
        return [state for (state,) in self.rows("SELECT state FROM django_mcp_idem_idempotencyrecord ORDER BY id")]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What a query on the shop's database returns."""
        return execute_on_server(sql, url=self.environment["DATABASE_URL"])

    def tells_in_progress(self, name: str, arguments: Any, *, key: str) -> bool:
        """Whether a call is refused for being in progress."""
        error = self.call(name, arguments, key=key).get("error", {})
        return bool(error.get("data", {}).get("type") == "idempotency_key_in_progress")

    @contextmanager
    def sent(
        self, name: str, arguments: Any, *, key: str | None = None, progress: bool = False
    ) -> Iterator[socket.socket]:
        """Send a call, which may ask for progress; leaving the context hangs up, whether or not there was an answer."""
        body, headers = request(name, arguments, key=key, progress=progress)
        address = urlsplit(self.url)
        head = f"POST {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(body)}\r\n"
        head += "".join(f"{header}: {value}\r\n" for header, value in headers.items())
        with socket.create_connection((str(address.hostname), int(address.port or 80))) as connection:
            connection.sendall(f"{head}\r\n".encode() + body)
            yield connection


# The lock on a key. On MariaDB, where such locks cannot be listed: a transaction that has written the claim.
_COMMITTED_CLAIMS = "SELECT 1 FROM django_mcp_idem_idempotencyrecord WHERE state = 'running'"
_JOINED_CLAIMS = {
    "postgresql": "SELECT 1 FROM pg_locks JOIN pg_database ON database = pg_database.oid "
    "WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 1",
    "mysql": "SELECT 1 FROM information_schema.innodb_trx WHERE trx_rows_modified > 0",
}


@contextmanager
def shop(
    kind: str,
    *,
    project: str = "example_project",
    path: str = "/mcp",
    port: int | None = None,
    **environment: str,
) -> Iterator[Shop]:
    """The example shop behind a server, on a database of its own.

    Args:
        kind: Which server: one of ``COMMANDS``, or ``FOUR_WORKERS``.
        project: Package of the settings, ``asgi`` and ``wsgi`` modules.
        path: Path of the endpoint.
        port: Where it listens; any free port if not given.
        environment: Environment variables to add.
    """
    port = port or free_port()
    complete = shop_environment(f"{project}.settings", **environment)
    command = [part.format(port=port, project=project) for part in _ALL_COMMANDS[kind]]
    with serving(command, port=port, environment=complete, log=directory() / f"server-{port}.log") as server:
        yield Shop(url=f"http://127.0.0.1:{port}{path}", environment=complete, server=server)


@contextmanager
def serving(
    command: Sequence[str], *, port: int, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when it listens until the context is left.

    Args:
        command: A Python module and its arguments.
        port: Where it is to listen.
        environment: Its environment variables.
        log: The file for what it says on stderr.

    Raises:
        RuntimeError: It ended before it listened.
    """
    with log.open("wb") as stderr:
        server = subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, env=environment, stderr=stderr)
    try:
        while not _listens(port):
            if server.poll() is not None:
                raise RuntimeError(f"The server ended before it listened: {log.read_text()}")
            time.sleep(0.05)
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def shop_environment(settings_module: str, **environment: str) -> dict[str, str]:
    """Environment variables for a process of the example shop, on a database of its own with the demo data."""
    return {
        **os.environ,
        "DATABASE_URL": _copy_of(_template(), f"shop{next(_numbers)}"),
        "DJANGO_SETTINGS_MODULE": settings_module,
        "PYTHONPATH": str(ROOT),
        **environment,
    }


_numbers = itertools.count()


@cache
def _template() -> str:
    """Name of a database with the example's tables and demo data, to copy."""
    name = "shop"
    if not _on("sqlite"):
        execute_on_server(f"CREATE DATABASE {name}")
    environment = {**os.environ, "DATABASE_URL": _url(name), "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    for command in ("migrate --verbosity=0", "demo_data --verbosity=0"):
        subprocess.run([sys.executable, "manage.py", *command.split()], cwd=ROOT, env=environment, check=True)
    return name


def _copy_of(template: str, name: str) -> str:
    if _on("sqlite"):
        shutil.copy(directory() / f"{template}.sqlite3", directory() / f"{name}.sqlite3")
    elif _on("postgres"):
        execute_on_server(f"CREATE DATABASE {name} TEMPLATE {template}")
    else:
        execute_on_server(f"CREATE DATABASE {name}")
        _mariadb_client("mariadb", name, _mariadb_client("mariadb-dump", template))
    return _url(name)


def _mariadb_client(command: str, name: str, stdin: bytes | None = None) -> bytes:
    """What one of MariaDB's own commands prints, connected to a database."""
    database = database_at(_url(name))
    (_, *arguments), variables = database.client.settings_to_cmd_args_env(database.settings_dict, [])
    environment = {**os.environ, **(variables or {})}
    ran = subprocess.run([command, *arguments], env=environment, input=stdin, stdout=subprocess.PIPE, check=True)
    return ran.stdout


def _url(name: str) -> str:
    if _on("sqlite"):
        return f"sqlite:///{directory() / name}.sqlite3"
    return urlsplit(database_url())._replace(path=f"/{name}").geturl()


def _on(scheme: str) -> bool:
    return urlsplit(database_url()).scheme.startswith(scheme)


def announce(environment: Mapping[str, str]) -> None:
    """Announce that the tools of a shop have changed, as a management command does it."""
    code = "from django_mcp_idem import site; site.notify_tools_changed()"
    command = [sys.executable, "manage.py", "shell", "--command", code]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)


def request(
    name: str,
    arguments: Any,
    *,
    key: str | None = None,
    progress: bool = False,
    token: str = "demo-alice",
    version: str = wire.MODERN,
) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a call."""
    keyed = {} if key is None else {"idempotencyKey": key}
    params = wire.call_params(name, arguments, version, **keyed)
    if progress:
        params.setdefault("_meta", {})["progressToken"] = "p"
    return wire.message("tools/call", params), wire.headers(token, "tools/call", name, version)
