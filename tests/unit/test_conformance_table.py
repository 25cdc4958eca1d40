"""The table of rows in the docs says what is proved by which test, and does not err."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = dict(re.findall(r"^\| (R\d\d) \| (.*) \|$", (ROOT / "docs" / "conformance.md").read_text(), re.MULTILINE))


def test_every_row_stands_in_the_table() -> None:
    assert list(ROWS) == [f"R{number:02}" for number in range(1, 29)]


@pytest.mark.parametrize("row", ROWS)
def test_each_test_that_a_row_names_exists_and_names_the_row(row: str) -> None:
    status, proofs = ROWS[row].rsplit(" | ", 2)[1:]
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", proofs)

    assert named or status.startswith(("not yet", "partly: documented"))
    for path, name in named:
        assert row in _words(path, name), f"{path}::{name}"


def _words(path: str, name: str) -> str:
    """The name and docstring of a test; empty if there is none."""
    for node in ast.walk(ast.parse((ROOT / "tests" / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return f"{name.upper()} {ast.get_docstring(node)}"
    return ""
