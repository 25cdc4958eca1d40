"""A small shop that uses ``django_mcp_idem``: what the demo, the tests and ``make run`` serve."""

from .celery import app as celery_app

__all__ = ["celery_app"]
