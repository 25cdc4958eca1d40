from __future__ import annotations

from django.urls import include, path

from django_mcp_idem import site

urlpatterns = [path("api/", include([path("v1/mcp", site)]))]
