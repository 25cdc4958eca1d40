"""The database's clock, the only one that decides anything (R27)."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.db.models.sql.compiler import SQLCompiler

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
