"""What a retry gets (R06): the recorded result, whatever it was, and no second run."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from django_mcp_idem.testing import mcp_client
from tests.app.models import Effect

pytestmark = pytest.mark.django_db


def test_a_retry_gets_the_first_result_and_runs_nothing(user: User, lock_cache: str | None) -> None:
    client = mcp_client(user)

    first = client.call_tool("atomic", {"label": "a"}, key="k")
    retry = client.call_tool("atomic", {"label": "a"}, key="k")

    assert retry == first
    assert Effect.objects.count() == 1
