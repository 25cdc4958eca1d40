"""What the test tools do to the world, so that it can be counted."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """One effect of one run of a body."""

    label = models.TextField()

    def __str__(self) -> str:
        return self.label


class Tally(models.Model):
    """A table whose constraints a body can break."""

    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name
