"""What the suite wrote of one leg, held against what is expected of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PASSED = ("SUCCESS", "INFO")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of a scenario.

    Attributes:
        name: As an entry of ``expected`` names it: ``scenario:check``.
        status: The suite's word for how it ended.
        message: What the suite says of it.
    """

    name: str
    status: str
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether there is nothing to explain. What was skipped proves nothing, so it has to be explained too."""
        return self.status in PASSED


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is to be said of one scenario of a leg.

    Attributes:
        scenario: Its name.
        checks: What was checked.
        expected: What may be wrong with it, and why.
    """

    scenario: str
    checks: Sequence[Check]
    expected: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether all its checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def explained(self) -> Mapping[str, Sequence[Check]]:
        """The checks that did not pass as expected, by the reason."""
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            if not check.passed and (reason := self._reason(check)) is not None:
                found.setdefault(reason, []).append(check)
        return found

    @property
    def unexpected(self) -> Sequence[Check]:
        """The checks that did not pass, and nothing says why."""
        return [check for check in self.checks if not check.passed and self._reason(check) is None]

    @property
    def stale(self) -> Sequence[str]:
        """The entries about it that it no longer needs."""
        failed = {name for check in self.checks if not check.passed for name in (self.scenario, check.name)}
        return [name for name in self.expected if name.split(":")[0] == self.scenario and name not in failed]

    @property
    def failed(self) -> bool:
        """Whether it is other than expected."""
        return bool(self.unexpected or self.stale)

    def _reason(self, check: Check) -> str | None:
        return self.expected.get(check.name, self.expected.get(self.scenario))


def read_verdicts(results: Path, expected: Mapping[str, str]) -> list[Verdict]:
    """The verdicts on all scenarios of a leg.

    Args:
        results: The directory that the suite wrote them to, with one directory for each scenario.
        expected: What may be wrong, and why.
    """
    return [_read_verdict(directory, expected) for directory in sorted(results.iterdir())]


def _read_verdict(directory: Path, expected: Mapping[str, str]) -> Verdict:
    scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\dZ-]+$", "", directory.name)
    return Verdict(scenario=scenario, checks=_read_checks(scenario, directory), expected=expected)


def _read_checks(scenario: str, directory: Path) -> list[Check]:
    try:
        written = json.loads((directory / "checks.json").read_text())
    except FileNotFoundError:
        written = []
    checks = [
        Check(name=f"{scenario}:{one['id']}", status=one["status"], message=one.get("errorMessage") or "")
        for one in written
    ]
    if all(check.status == "INFO" for check in checks):
        checks.append(Check(name=f"{scenario}:no-verdict", status="FAILURE", message="Nothing was checked."))
    return checks


def count(checks: Sequence[Check]) -> str:
    """How many checks ended how, in the suite's words."""
    counts = Counter(check.status for check in checks)
    return ", ".join(f"{counts[status]} {status}" for status in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED"))
