"""What a key can have behind it when a fault is done to its call."""

from __future__ import annotations

from typing import Literal

import pytest
from django.contrib.auth.models import User

from django_mcp_idem.testing import mcp_client
from tests.factories import RecordFactory
from tests.faults.promises import Told, ask

Past = Literal["unused", "running", "lapsed", "expired", "finished"]

PASTS = ["unused", *(pytest.param(past, marks=pytest.mark.exhaustive) for past in ("lapsed", "expired", "finished"))]
"""Those whose next call does more than to look."""


def give_past(past: Past, user: User, tool: str, key: str) -> list[Told]:
    """Bring about the past of a key. Returns what its callers were told."""
    if past == "finished":
        return [ask(mcp_client(user), tool, key)]
    if past != "unused":
        RecordFactory(user=user, key=key, tool=tool, arguments={"label": key}, **{past: True})
    return []
