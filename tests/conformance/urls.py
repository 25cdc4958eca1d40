from __future__ import annotations

from django.urls import path

from django_mcp_idem import site

urlpatterns = [path("mcp", site)]
