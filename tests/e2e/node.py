"""Node, and the official clients that run on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.e2e.servers import ROOT

SCRIPTS = ROOT / "tests" / "node"
INSPECTOR = SCRIPTS / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"

SDK_CLIENT = "sdk"
"""The client of ``@modelcontextprotocol/sdk`` 1.x. What else ``typescript_client`` takes is a mode of 2.x."""

Call = tuple[str, Mapping[str, Any]]
"""A method of the client, and its params."""


@cache
def node() -> str:
    """Path of Node.

    Raises:
        RuntimeError: It is not installed, or its packages are not.
    """
    path = Path(sys.executable).with_name("node")
    if not path.exists() or not INSPECTOR.exists():
        raise RuntimeError(
            f"There is no {path}, or the packages of {SCRIPTS} are not installed. `make test` installs both before it "
            "runs the tests; `make tests/node/node_modules/.installed` does nothing else."
        )
    return str(path)


@dataclass(frozen=True, kw_only=True)
class TypeScriptClient:
    """One of the official TypeScript clients, in a process of its own.

    Attributes:
        agreed: The protocol version and the server's capabilities, once connected.
    """

    stdin: IO[str]
    stdout: IO[str]
    agreed: Any

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the client. Returns what came of it: ``{"result": ...}`` or ``{"error": ...}``."""
        (answer,) = self.at_once((method, params))
        return answer

    def at_once(self, *calls: Call) -> list[Any]:
        """Make calls without waiting in between. Returns what came of each."""
        self.stdin.write(json.dumps(calls) + "\n")
        self.stdin.flush()
        return list(_read(self.stdout))


@contextmanager
def typescript_client(
    kind: str, url: str, *, token: str = "demo-alice", headers: Mapping[str, str] | None = None
) -> Iterator[TypeScriptClient]:
    """A client that is connected, and answers each question with the name Alice.

    Args:
        kind: ``SDK_CLIENT``, or of ``@modelcontextprotocol/client`` the mode ``legacy`` or ``auto``, or a version.
        url: The endpoint.
        token: The bearer token.
        headers: What every request has, whatever the client itself would send under these names.
    """
    command = [node(), "client.mjs", url, token, kind, json.dumps(headers or {})]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=SCRIPTS, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield TypeScriptClient(stdin=process.stdin, stdout=process.stdout, agreed=_read(process.stdout))
    assert process.returncode == 0


def _read(stdout: IO[str]) -> Any:
    line = stdout.readline()
    assert line, "The client has ended; its stderr says why."
    return json.loads(line)


def inspect(url: str, *arguments: str, era: str, home: Path, token: str = "demo-alice") -> Any:
    """Run the Inspector's command line. Returns what it prints: ``{"result": ...}`` or ``{"error": ...}``.

    Args:
        url: The endpoint.
        arguments: What it is to do.
        era: ``legacy``, ``auto`` or ``modern``.
        home: Where it keeps its files, instead of the user's home.
        token: The bearer token.
    """
    connection = ["--server-url", url, "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    quietly = ["--format", "json", "--quiet", "--stored-auth-only"]
    ran = subprocess.run(
        [node(), str(INSPECTOR), "--cli", *connection, "--protocol-era", era, *quietly, *arguments],
        capture_output=True,
        check=False,
        text=True,
        env={"HOME": str(home)},
    )
    return json.loads(ran.stdout if ran.returncode == 0 else ran.stderr)
