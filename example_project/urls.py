"""The example's two URLs: the MCP endpoint and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_mcp_idem import site

urlpatterns = [
    path("mcp", site),
    path("admin/", admin.site.urls),
]
