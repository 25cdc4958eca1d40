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


class Line(models.Model):
    """Part of an effect, bound to it by a constraint that the database checks at COMMIT."""

    effect = models.ForeignKey(Effect, on_delete=models.CASCADE)

    def __str__(self) -> str:
        return f"Line of {self.effect_id}"
