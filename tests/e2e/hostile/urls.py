from __future__ import annotations

from django.urls import include, path

from django_mcp_idem import site

site.idempotency_key_in_header = True
site.idempotency_key_in_meta = True
site.idempotency_key_argument = "idempotencyKey"

urlpatterns = [path("api/", include([path("v1/mcp", site)]))]
