from __future__ import annotations

from hypothesis import settings

# A busy machine must not fail a test, so there is no deadline.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
