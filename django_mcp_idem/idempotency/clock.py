"""The database's clock, the only one that decides anything (R27)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone

from .databases import writer

Sql = tuple[str, Any]


class DatabaseNow(Func):
    """The moment the statement began, by the database's clock, in UTC."""

    # Postgres' NOW() is the start of the transaction, which a long body leaves far behind.
    template = "STATEMENT_TIMESTAMP()"
    output_field = DateTimeField()

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> Sql:
        # NOW() follows the server's time zone: a lease taken before the clocks go back would last an hour more.
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)")

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any) -> Sql:
        return self.as_sql(compiler, connection, template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW')")


def in_utc(moment: datetime) -> datetime:
    """A moment as it was read from a record, in UTC, whatever ``USE_TZ`` says."""
    if timezone.is_aware(moment):
        return moment.astimezone(UTC)
    # Without USE_TZ PostgreSQL tells moments in the zone of the project, the others as they were written.
    postgres = connections[writer()].vendor == "postgresql"
    return moment.replace(tzinfo=timezone.get_default_timezone() if postgres else UTC).astimezone(UTC)
