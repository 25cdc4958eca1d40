"""System checks: what is seen to be wrong before the first call (R14)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.urls import URLPattern, URLResolver, include, path, re_path
from django_redis.cache import RedisCache
from pytest_django import Settings as DjangoSettings

from django_mcp_idem import Site, site

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
DUMMY = "django.core.cache.backends.dummy.DummyCache"
OWN_REDIS = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"


def found() -> list[CheckMessage]:
    """What the package's checks find."""
    return [message for message in run_checks() if str(message.id).startswith("django_mcp_idem.")]


def ids() -> list[str | None]:
    return [message.id for message in found()]


def urlconf(*patterns: URLPattern | URLResolver) -> ModuleType:
    """A URLconf of the given patterns."""
    module = ModuleType("urls")
    module.urlpatterns = list(patterns)  # type: ignore[attr-defined]
    return module


def view() -> None: ...


def test_a_project_that_is_set_up_well_is_not_told_anything() -> None:
    assert found() == []


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"RETENTON": 1}, id="a setting that does not exist"),
        pytest.param({1: 2}, id="a name that is no text"),
        pytest.param([], id="no dict"),
        pytest.param(None, id="null"),
    ],
)
def test_settings_that_cannot_be_read_are_an_error_and_not_a_crash(settings: DjangoSettings, given: Any) -> None:
    settings.MCP_IDEM = given

    assert ids() == ["django_mcp_idem.E001"]


def test_a_setting_that_does_not_exist_is_named(settings: DjangoSettings) -> None:
    settings.MCP_IDEM = {"RETENTON": 1}

    [message] = found()

    assert "'RETENTON'" in message.msg
    assert "RETENTION" in message.msg


def test_r14_a_lock_cache_that_does_not_exist_is_an_error(settings: DjangoSettings) -> None:
    """R14."""
    settings.MCP_IDEM = {"LOCK_CACHE": "lokcs"}

    [message] = found()

    assert message.id == "django_mcp_idem.E002"
    assert "'lokcs'" in message.msg


@pytest.mark.parametrize("backend", [LOCMEM, DUMMY, OWN_REDIS])
def test_r14_a_lock_cache_that_is_not_of_django_redis_is_an_error(settings: DjangoSettings, backend: str) -> None:
    """R14: a local-memory or dummy cache would not be shared; Django's own has no locks."""
    settings.CACHES = {"default": {"BACKEND": LOCMEM}, "locks": {"BACKEND": backend, "LOCATION": "redis://localhost"}}
    settings.MCP_IDEM = {"LOCK_CACHE": "locks"}

    [message] = found()

    assert message.id == "django_mcp_idem.E003"
    assert backend in message.msg


class CacheOfTheProject(RedisCache):
    """A project's own cache, made of that of django-redis."""


@pytest.mark.parametrize("alias", [None, "locks", "own"])
def test_r14_a_lock_cache_of_django_redis_or_none_is_good(settings: DjangoSettings, alias: str | None) -> None:
    """R14."""
    settings.CACHES = {
        "default": {"BACKEND": LOCMEM},
        "locks": {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://127.0.0.1:1/0"},
        "own": {"BACKEND": f"{__name__}.CacheOfTheProject", "LOCATION": "redis://127.0.0.1:1/0"},
    }
    settings.MCP_IDEM = {"LOCK_CACHE": alias}

    assert found() == []


PROJECT = """
import sys
import django
from django.conf import settings
from django.core.management import call_command
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_mcp_idem"],
)
django.setup()
call_command("check")
"""


def checked_project(name: str) -> subprocess.CompletedProcess[str]:
    """``manage.py check`` of a project of its own, whose SQLite database is called ``name``."""
    return subprocess.run(
        [sys.executable, "-c", PROJECT, name],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", [":memory:", "file:shared?mode=memory&cache=shared"])
def test_r14_an_sqlite_database_in_memory_is_an_error(name: str) -> None:
    """R14: in a process of its own, since this one has a database already."""
    process = checked_project(name)

    assert process.returncode != 0
    assert "django_mcp_idem.E004" in process.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("records.sqlite3", id="a file"),
        pytest.param("file:memorydb_default?mode=memory&cache=shared", id="the test database that Django makes"),
    ],
)
def test_r14_an_sqlite_database_in_a_file_is_good_and_so_is_one_for_tests(tmp_path: Path, name: str) -> None:
    """R14."""
    process = checked_project(name if name.startswith("file:") else str(tmp_path / name))

    assert process.returncode == 0, process.stderr
    assert process.stderr == ""


@pytest.mark.parametrize(
    ("patterns", "routes"),
    [
        pytest.param([path("mcp/", site)], ["mcp/"], id="a slash"),
        pytest.param([path("api/", include([path("mcp/", site)]))], ["api/mcp/"], id="a slash in an include"),
        pytest.param([path("mcp/", include([path("", site)]))], ["mcp/"], id="the slash of the include"),
        pytest.param([re_path("^mcp/", site)], ["^mcp/"], id="a slash in a regular expression"),
        pytest.param([path("mcp", site), path("staff/", Site("staff"))], ["staff/"], id="one of two"),
        pytest.param([path("a/", Site("a")), path("b/", Site("b"))], ["a/", "b/"], id="both"),
    ],
)
def test_a_route_that_ends_in_a_slash_is_warned_of(
    settings: DjangoSettings, patterns: list[URLPattern | URLResolver], routes: list[str]
) -> None:
    settings.ROOT_URLCONF = urlconf(*patterns)

    messages = found()

    assert [message.id for message in messages] == ["django_mcp_idem.W001"] * len(routes)
    for message, route in zip(messages, routes, strict=True):
        assert repr(route) in message.msg
        assert repr(route.rstrip("/")) in str(message.hint)


@pytest.mark.parametrize(
    "patterns",
    [
        pytest.param([path("mcp", site)], id="no slash"),
        pytest.param([path("", site)], id="the root"),
        pytest.param([path("api/", include([path("mcp", site)]))], id="a slash before it"),
        pytest.param([path("mcp", site), path("shop/", view), path("more/", include([]))], id="slashes of others"),
        pytest.param([], id="no site at all"),
    ],
)
def test_other_routes_are_not_warned_of(settings: DjangoSettings, patterns: list[URLPattern | URLResolver]) -> None:
    settings.ROOT_URLCONF = urlconf(*patterns)

    assert found() == []
