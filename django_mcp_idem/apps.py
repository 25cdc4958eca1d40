"""The app's configuration."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class DjangoMcpIdemConfig(AppConfig):
    """Imports every installed app's ``mcp_tools`` once the models are loaded, as the admin does with ``admin``."""

    name = "django_mcp_idem"
    verbose_name = _("MCP endpoint")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks  # noqa: F401  registers the system checks
        from .idempotency.shutdown import watch_for_shutdown

        watch_for_shutdown()
        autodiscover_modules("mcp_tools")
