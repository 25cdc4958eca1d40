"""Runs both releases of the official conformance suite against this project's servers: ``make conformance``.

It says of each server and leg how many scenarios passed, and why others did not. It fails where that is not as
``tests.conformance.expected`` has it. The servers share a Redis; a database they do not need.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.expected import UNDER_ASGI, UNDER_WSGI
from tests.conformance.verdicts import Verdict, count, read_verdicts
from tests.e2e.servers import ROOT, serving
from tests.services import directory, free_port, redis_url

NODE = Path(sys.executable).with_name("node")
RELEASES = {name: ROOT / f"tests/node/node_modules/conformance-{name}/dist/index.js" for name in ("0.1", "0.2")}
# A leg takes some five seconds. Release 0.1 waits for ever for a server that does not answer.
LEG_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server of the fixtures.

    Attributes:
        name: What it is called in the report.
        gunicorn: How gunicorn runs it.
        expected: What may be wrong with it, and why.
    """

    name: str
    gunicorn: Sequence[str]
    expected: Mapping[str, str]


_ASGI_WORKERS = ("--workers=2", "--worker-class=uvicorn_worker.UvicornWorker")
_WSGI_WORKERS = ("--workers=2", "--threads=8")

SERVERS = [
    Server(name="ASGI", gunicorn=[*_ASGI_WORKERS, "tests.conformance.asgi:application"], expected=UNDER_ASGI),
    Server(name="ASGI mount", gunicorn=[*_ASGI_WORKERS, "tests.conformance.mounted:application"], expected=UNDER_ASGI),
    Server(name="WSGI", gunicorn=[*_WSGI_WORKERS, "tests.conformance.wsgi:application"], expected=UNDER_WSGI),
]

LEGS = [
    ("0.1", "--suite all"),
    ("0.2", "--requirements 2025-11-25"),
    ("0.2", "--requirements 2026-07-28"),
    ("0.2", "--suite all --spec-version 2025-03-26"),
    ("0.2", "--suite all --spec-version 2025-06-18"),
    ("0.2", "--suite all --spec-version 2025-11-25"),
    ("0.2", "--suite all --spec-version 2026-07-28"),
]


def main() -> int:
    """Run everything. Returns the exit status: 1 if anything is other than expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=directory(), help="keep what the suite and the servers write")
    output: Path = parser.parse_args().output
    verdicts = [verdict for server in SERVERS for verdict in _run(server, output / server.name)]
    failed = [verdict for verdict in verdicts if verdict.failed]
    passed = [verdict for verdict in verdicts if verdict.passed and not verdict.failed]
    explained = len(verdicts) - len(passed) - len(failed)
    print(f"{len(passed)} passed, {len(failed)} failed, {explained} expected not to pass")
    return 1 if failed else 0


def _run(server: Server, output: Path) -> list[Verdict]:
    """The verdicts of all legs, and one for each scenario that something is expected of and that no leg has."""
    with _running(server, output) as url:
        verdicts = [verdict for leg in LEGS for verdict in _run_leg(server, *leg, url=url, output=output)]
    missing = {name.split(":")[0] for name in server.expected} - {verdict.scenario for verdict in verdicts}
    unseen = [Verdict(scenario=scenario, checks=(), expected=server.expected) for scenario in sorted(missing)]
    for verdict in unseen:
        _tell(verdict)
    return verdicts + unseen


@contextmanager
def _running(server: Server, output: Path) -> Iterator[str]:
    """Serves at the URL that it gives."""
    output.mkdir(parents=True, exist_ok=True)
    port = free_port()
    environment = {**os.environ, "REDIS_URL": redis_url(), "PYTHONPATH": str(ROOT)}
    command = ["gunicorn", f"--bind=127.0.0.1:{port}", *server.gunicorn]
    with serving(command, port=port, environment=environment, log=output / "server.log"):
        yield f"http://127.0.0.1:{port}/mcp"


def _run_leg(server: Server, release: str, options: str, *, url: str, output: Path) -> list[Verdict]:
    results = output / f"{release} {options}"
    shutil.rmtree(results, ignore_errors=True)
    command = [NODE, RELEASES[release], "server", "--url", url, "--output-dir", results, *options.split()]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LEG_SECONDS)
    if "=== SUMMARY ===" not in ran.stdout:
        raise RuntimeError(f"The suite did not come to its end: {ran.stdout}")
    verdicts = read_verdicts(results, server.expected)
    score = f"{sum(verdict.passed for verdict in verdicts)} of {len(verdicts)} scenarios passed"
    checks = count([check for verdict in verdicts for check in verdict.checks])
    print(f"{server.name} | {release} {options} | {score} | {checks}", flush=True)
    for verdict in verdicts:
        _tell(verdict)
    return verdicts


def _tell(verdict: Verdict) -> None:
    for reason, checks in verdict.explained.items():
        print(f"    as expected: {verdict.scenario} ({len(checks)} of {len(verdict.checks)} checks): {reason}")
    for check in verdict.unexpected:
        print(f"    {check.status} {check.name} {check.message}".rstrip())
    for name in verdict.stale:
        print(f"    STALE {name} is expected not to pass, and passes or is run no more")


if __name__ == "__main__":
    sys.exit(main())
