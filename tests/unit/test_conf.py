"""The settings of the package."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from pytest_django import Settings as DjangoSettings

from django_mcp_idem.conf import Settings, get_settings


def test_without_settings_the_defaults_hold(settings: DjangoSettings) -> None:
    del settings.MCP_IDEM

    assert get_settings() == Settings()


def test_r12_records_are_kept_for_a_day_and_unknown_outcomes_for_thirty() -> None:
    """R12."""
    defaults = Settings()

    assert (timedelta(hours=24), timedelta(days=30)) == (defaults.RETENTION, defaults.UNKNOWN_RETENTION)


def test_by_default_nobody_is_served_unknown_and_redis_is_not_needed() -> None:
    assert Settings().ALLOW_ANONYMOUS is False
    assert Settings().LOCK_CACHE is None


def test_what_is_set_takes_the_place_of_its_default_alone(settings: DjangoSettings) -> None:
    settings.MCP_IDEM = {"RETENTION": timedelta(hours=1)}

    assert get_settings() == Settings(RETENTION=timedelta(hours=1))


def test_overridden_settings_hold_as_long_as_they_are_overridden() -> None:
    before = get_settings()

    with override_settings(MCP_IDEM={"RESULT_MAX_BYTES": 1}):
        assert get_settings().RESULT_MAX_BYTES == 1

    assert get_settings() == before


def test_a_setting_that_does_not_exist_is_named_beside_those_that_do(settings: DjangoSettings) -> None:
    settings.MCP_IDEM = {"RETENTION": timedelta(hours=1), "RETENTON": timedelta(hours=1)}

    with pytest.raises(ImproperlyConfigured, match=r"'RETENTON'.*RETENTION") as refused:
        get_settings()
    assert "'RETENTION'" not in str(refused.value)


@pytest.mark.parametrize("given", [None, [], "RETENTION", 1], ids=repr)
def test_settings_that_are_no_dict_are_refused(settings: DjangoSettings, given: Any) -> None:
    settings.MCP_IDEM = given

    with pytest.raises(ImproperlyConfigured, match=f"not {type(given).__name__}"):
        get_settings()
