from __future__ import annotations

from django.urls import path

from django_mcp_idem import site

site.idempotency_key_in_meta = True

urlpatterns = [path("mcp", site)]
