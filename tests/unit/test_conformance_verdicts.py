"""What the runner of the official suite says of what the suite wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.conformance.expected import UNDER_ASGI, UNDER_WSGI
from tests.conformance.verdicts import Verdict, read_verdicts

DOCS = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def read(tmp_path: Path, checks: Sequence[tuple[str, str]] | None, expected: Mapping[str, str]) -> Verdict:
    """The verdict on a scenario that the suite wrote ``checks`` of, or nothing."""
    directory = tmp_path / "server-server-stateless-2026-12-02T23-15-09-295Z"
    directory.mkdir()
    if checks is not None:
        written = [{"id": name, "status": status, "errorMessage": "why"} for name, status in checks]
        (directory / "checks.json").write_text(json.dumps(written))
    (verdict,) = read_verdicts(tmp_path, expected)
    return verdict


def test_a_scenario_whose_checks_succeed_has_passed(tmp_path: Path) -> None:
    verdict = read(tmp_path, [("one", "SUCCESS"), ("told", "INFO")], {})

    assert verdict.scenario == "server-stateless"
    assert (verdict.passed, verdict.failed) == (True, False)


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "OF A LATER RELEASE"])
def test_whatever_else_comes_of_a_check_fails_the_run(tmp_path: Path, status: str) -> None:
    verdict = read(tmp_path, [("one", "SUCCESS"), ("two", status)], {})

    assert [check.name for check in verdict.unexpected] == ["server-stateless:two"]
    assert (verdict.passed, verdict.failed) == (False, True)


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED"])
@pytest.mark.parametrize("name", ["server-stateless", "server-stateless:two"])
def test_it_does_not_where_the_scenario_or_the_check_is_expected_not_to_pass(
    tmp_path: Path, name: str, status: str
) -> None:
    verdict = read(tmp_path, [("one", "SUCCESS"), ("two", status)], {name: "a reason"})

    assert [(reason, len(checks)) for reason, checks in verdict.explained.items()] == [("a reason", 1)]
    assert (verdict.passed, verdict.failed) == (False, False)


def test_another_check_than_the_expected_one_fails_the_run(tmp_path: Path) -> None:
    verdict = read(tmp_path, [("one", "FAILURE"), ("two", "FAILURE")], {"server-stateless:two": "a reason"})

    assert [check.name for check in verdict.unexpected] == ["server-stateless:one"]
    assert verdict.failed


@pytest.mark.parametrize("name", ["server-stateless", "server-stateless:two", "server-stateless:gone"])
def test_an_entry_that_is_not_needed_any_more_fails_the_run(tmp_path: Path, name: str) -> None:
    verdict = read(tmp_path, [("one", "SUCCESS"), ("two", "SUCCESS")], {name: "a reason", "tools-list": "another"})

    assert verdict.stale == [name]
    assert verdict.failed


@pytest.mark.parametrize("checks", [None, [], [("told", "INFO")]], ids=["no file", "no check", "remarks alone"])
def test_a_scenario_that_came_to_nothing_has_not_passed(
    tmp_path: Path, checks: Sequence[tuple[str, str]] | None
) -> None:
    verdict = read(tmp_path, checks, {})

    assert [check.name for check in verdict.unexpected] == ["server-stateless:no-verdict"]
    assert verdict.failed


def test_the_docs_name_each_scenario_that_does_not_pass_and_why() -> None:
    where = {name: "both" if name in UNDER_ASGI else "WSGI" for name in UNDER_WSGI}
    rows = {f"| `{name.split(':')[0]}` | {where[name]} | {reason} |" for name, reason in UNDER_WSGI.items()}

    assert {line for line in DOCS.read_text().splitlines() if line.startswith("| `")} == rows
